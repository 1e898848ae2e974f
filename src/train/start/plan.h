/* The plan of a run. */
#ifndef SP_TRAIN_PLAN_H
#define SP_TRAIN_PLAN_H

#include "train/trainer.h"

/* Makes the plan, once the model is known, and completes cfg.layout from it. 0, or -errno after
 * one line. */
int sp_train_plan(struct sp_trainer *t);

#endif
