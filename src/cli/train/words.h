/* The lines that a run prints before its first step, and about --offload. */
#ifndef SP_CLI_TRAIN_WORDS_H
#define SP_CLI_TRAIN_WORDS_H

#include "train/trainer.h"

/* Warns about settings that are possible but unusual. */
void sp_print_warnings(const struct sp_trainer *t);
/* Prints three lines on stdout: the model and where its weights come from, since nobody should
 * train from random ones unknowingly; the schedule and where it runs; where the run saves. */
void sp_print_header(const struct sp_trainer *t);
/* The plan of what leaves memory; and t->report's account of what did leave. */
void sp_print_offload(const struct sp_trainer *t);
void sp_print_offloaded(const struct sp_trainer *t);

#endif
