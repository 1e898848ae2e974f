/* What a run says before its first step, and of --offload. */
#ifndef SP_CLI_TRAIN_WORDS_H
#define SP_CLI_TRAIN_WORDS_H

#include "train/trainer.h"

/* What is odd but can be done, as warnings. */
void sp_print_warnings(const struct sp_trainer *t);
/* Three lines on stdout: the model, with what its weights are, since nobody should train from random ones without
 * knowing it; the schedule and where it runs; where the run saves. */
void sp_print_header(const struct sp_trainer *t);
/* The plan of what leaves memory; and what t->report says was done of it. */
void sp_print_offload(const struct sp_trainer *t);
void sp_print_offloaded(const struct sp_trainer *t);

#endif
