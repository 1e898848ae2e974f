/* Starts a trainer that was prepared, and stops it. */
#ifndef SP_TRAIN_START_H
#define SP_TRAIN_START_H

#include "train/trainer.h"

/* All ranks call it. 0; or -errno in a run of one process, while several end. To be stopped in
 * any case. */
int sp_train_start(struct sp_trainer *t);
/* Start and stop only StarPU and the graph, for a run that continues in another layout. 0 or
 * -errno. */
int sp_train_start_graph(struct sp_trainer *t);
void sp_train_stop_graph(struct sp_trainer *t);
/* Undoes as much of the start as was done, and completes a save that save_async has begun. 0 or
 * -errno of that save. */
int sp_train_stop(struct sp_trainer *t);

#endif
