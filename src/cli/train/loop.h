/* The loop of `starpipe train`. */
#ifndef SP_CLI_LOOP_H
#define SP_CLI_LOOP_H

#include "train/trainer.h"

/* All steps and what follows them. 0 or -errno: -EDOM when the run diverged, -EINTR when a signal ended
 * it and nothing was saved. */
int sp_loop(struct sp_trainer *t);

/* For sp_train_config: signals. */
int sp_loop_asks(void *arg);

#endif
