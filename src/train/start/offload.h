/* --offload: evicts activations from memory. */
#ifndef SP_TRAIN_OFFLOAD_H
#define SP_TRAIN_OFFLOAD_H

#include "train/trainer.h"

/* Before the start: plans the evictions, and checks that they fit and that the disk has room. 0
 * or -errno. */
int sp_train_offload_early(struct sp_trainer *t);
/* After StarPU started, before the graph: opens the tier, and plans the evictions at its rates.
 * All ranks call it. 0 or -errno. */
int sp_train_offload_measured(struct sp_trainer *t);

#endif
