/* Writes cfg.log, on rank 0; without one these do nothing. All return 0 or -errno. */
#ifndef SP_TRAIN_LOG_H
#define SP_TRAIN_LOG_H

#include "train/trainer.h"

/* Opens it, and writes the first line: plan and versions. */
int sp_train_log_open(struct sp_trainer *t);
/* Writes such a line again, when the run continues in another layout. */
int sp_train_log_layout(struct sp_trainer *t);
/* Writes a step's line from t->report. */
int sp_train_log_step(struct sp_trainer *t, int step, double lr);
/* Writes the line of an evaluation after the steps done. It has no "step", which would make it a
 * step's line. */
int sp_train_log_eval(struct sp_trainer *t);

#endif
