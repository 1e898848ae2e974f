/* --recompute auto: chooses, before the start, which layers compute again, together with the
 * evictions. */
#ifndef SP_TRAIN_RECOMPUTE_H
#define SP_TRAIN_RECOMPUTE_H

#include "train/trainer.h"

/* Chooses, if it was asked for, and puts the choice into the plan. 0 or -errno after one line. */
int sp_train_choose_recompute(struct sp_trainer *t);

#endif
