/* What sp_trainer_step is made of, for others. */
#ifndef SP_TRAIN_STEP_H
#define SP_TRAIN_STEP_H

#include "train/trainer.h"

/* What the settings make of a step, counted from 0, whose gradient has this norm. */
struct sp_update sp_train_update(const struct sp_train_config *cfg, int step, double grad_norm);

/* Of t->report: idle / (idle + busy), the mean of the stages. */
double sp_train_bubble(const struct sp_trainer *t);

#endif
