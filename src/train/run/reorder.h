/* Searches an order again, at the costs that the run measured. */
#ifndef SP_TRAIN_REORDER_H
#define SP_TRAIN_REORDER_H

#include "train/trainer.h"

/* True if the next step begins with a new search. */
bool sp_train_reorders(const struct sp_trainer *t);
/* Rank 0 searches, and all take the order over. All call it, between steps. 0 or -errno. */
int sp_train_reorder(struct sp_trainer *t);

#endif
