/* Weights and moments that go over into another layout, in files of t->choice->carried, as f32. All ranks call these. */
#ifndef SP_TRAIN_CARRIED_H
#define SP_TRAIN_CARRIED_H

#include "train/trainer.h"

/* Writes those of all blocks, gathered on rank 0. 0 or -errno after one line. */
int sp_train_write_carried(struct sp_trainer *t);
/* True from the writing on until the files are removed: a new graph is filled with them. */
bool sp_train_carries(const struct sp_trainer *t);
/* Fills the graph. 0 or -errno after one line. */
int sp_train_take_carried(struct sp_trainer *t);
void sp_train_remove_carried(struct sp_trainer *t);

#endif
