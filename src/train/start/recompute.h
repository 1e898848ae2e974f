/* --recompute auto: which layers compute again, chosen with what leaves memory, before the start. */
#ifndef SP_TRAIN_RECOMPUTE_H
#define SP_TRAIN_RECOMPUTE_H

#include "train/trainer.h"

/* Into the plan, if it was asked for. 0 or -errno after one line. */
int sp_train_choose_recompute(struct sp_trainer *t);

#endif
