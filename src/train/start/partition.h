/* Chooses the layers of each stage. */
#ifndef SP_TRAIN_PARTITION_H
#define SP_TRAIN_PARTITION_H

#include "train/trainer.h"

/*
 * --partition, after the plan was made: applies a list of layers, or the partition that balances
 * estimated times, so that the checks of memory before the start have one. 0 or -errno.
 */
int sp_train_partition_early(struct sp_trainer *t);
/*
 * --partition balanced, after StarPU started and before the graph: measures a layer on rank 0,
 * applies the partition that balances the times, the same on every rank, and prints it in one line.
 * All ranks call it. 0 or -errno.
 */
int sp_train_partition_measured(struct sp_trainer *t);

#endif
