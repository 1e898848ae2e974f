/* A trainer that was prepared begins to run, and ends. */
#ifndef SP_TRAIN_START_H
#define SP_TRAIN_START_H

#include "train/trainer.h"

/* All ranks call it. 0; or -errno of a run of one process, others end: to be stopped all the same. */
int sp_train_start(struct sp_trainer *t);
/* Of it StarPU and the graph alone, and their end: for a run that goes on in another layout. 0 or -errno. */
int sp_train_start_graph(struct sp_trainer *t);
void sp_train_stop_graph(struct sp_trainer *t);
/* Undoes as much of it as was done, and writes what save_async has begun. 0 or -errno of that. */
int sp_train_stop(struct sp_trainer *t);

#endif
