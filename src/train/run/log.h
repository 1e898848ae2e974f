/* cfg.log, on rank 0; nothing where there is none. 0 or -errno. */
#ifndef SP_TRAIN_LOG_H
#define SP_TRAIN_LOG_H

#include "train/trainer.h"

/* Opens it, and writes the first line: plan and versions. */
int sp_train_log_open(struct sp_trainer *t);
/* Such a line once more, where the run goes on in another layout. */
int sp_train_log_layout(struct sp_trainer *t);
/* A step's line, of t->report. */
int sp_train_log_step(struct sp_trainer *t, int step, double lr);
/* The line of an evaluation after the steps done; no "step" in it, which would make it one. */
int sp_train_log_eval(struct sp_trainer *t);

#endif
