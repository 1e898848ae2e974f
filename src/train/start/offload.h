/* --offload: what leaves memory. */
#ifndef SP_TRAIN_OFFLOAD_H
#define SP_TRAIN_OFFLOAD_H

#include "train/trainer.h"

/* Before the start: what leaves, whether it fits, and room on disk. 0 or -errno. */
int sp_train_offload_early(struct sp_trainer *t);
/* After StarPU started, before the graph: the tier, and what leaves at its rates. All ranks call it. 0
 * or -errno. */
int sp_train_offload_measured(struct sp_trainer *t);

#endif
