/* --sample. */
#ifndef SP_CLI_SAMPLE_H
#define SP_CLI_SAMPLE_H

#include "train/trainer.h"

/* Prints the prompt and n tokens after it. All ranks call it. 0 or -ENOMEM. */
int sp_print_sample(struct sp_trainer *t, const char *prompt, int n);

#endif
