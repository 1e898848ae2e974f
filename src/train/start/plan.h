/* The plan of a run. */
#ifndef SP_TRAIN_PLAN_H
#define SP_TRAIN_PLAN_H

#include "train/trainer.h"

/* Makes it, once the model is known, and completes cfg.layout by it. 0, or -errno after one line. */
int sp_train_plan(struct sp_trainer *t);

#endif
