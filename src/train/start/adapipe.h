/* Schedule adapipe chooses layers and recomputation: its versions of the two calls of
 * partition.h. */
#ifndef SP_TRAIN_ADAPIPE_H
#define SP_TRAIN_ADAPIPE_H

#include "train/trainer.h"

bool sp_train_is_adapipe(const struct sp_trainer *t);
int sp_train_adapipe_early(struct sp_trainer *t);
int sp_train_adapipe_measured(struct sp_trainer *t);

#endif
