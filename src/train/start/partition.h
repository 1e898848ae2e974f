/* The layers of each stage. */
#ifndef SP_TRAIN_PARTITION_H
#define SP_TRAIN_PARTITION_H

#include "train/trainer.h"

/*
 * --partition, after the plan was made: a list of layers, or the one that estimated times balance,
 * so that the checks of memory before the start have something to go by. 0 or -errno.
 */
int sp_train_partition_early(struct sp_trainer *t);
/*
 * --partition balanced, after StarPU started and before the graph: measures a layer on rank 0 and
 * applies the partition that the times balance, the same on every rank; says it in one line. All
 * ranks call it. 0 or -errno.
 */
int sp_train_partition_measured(struct sp_trainer *t);

#endif
