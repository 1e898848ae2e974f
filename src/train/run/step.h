/* The parts of sp_trainer_step that other files use. */
#ifndef SP_TRAIN_STEP_H
#define SP_TRAIN_STEP_H

#include "train/trainer.h"

/* The optimizer's settings for a step, counted from 0, whose gradient has this norm. */
struct sp_update sp_train_update(const struct sp_train_config *cfg, int step, double grad_norm);

/* idle / (idle + busy) of t->report, the mean of the stages. */
double sp_train_bubble(const struct sp_trainer *t);

#endif
