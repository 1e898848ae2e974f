/* The life of a trainer: prepared, which may be refused; started; closed. */
#ifndef SP_TRAIN_START_H
#define SP_TRAIN_START_H

#include "train/trainer.h"

/* Checks everything, and begins nothing. All ranks call it. 0, or -errno on all of them after one line: nothing is left. */
int sp_train_prepare(const struct sp_train_config *cfg, struct sp_trainer **t);
/* Starts what was prepared. All ranks call it. 0; or -errno in a run of one process, while others end: it must be stopped
 * all the same. */
int sp_train_start(struct sp_trainer *t);
/* sp_trainer_close undoes as much of both as was done. */

/* A run goes on in another layout: its graph ends, and StarPU with it; plan, placement and memory are made anew, as
 * cfg.layout and cfg.groups have become, or refused; and both begin again. All ranks call them. 0 or -errno on all. */
void sp_train_stop_graph(struct sp_trainer *t);
int sp_train_lay_out_again(struct sp_trainer *t);
int sp_train_start_graph(struct sp_trainer *t);

/* sp_transport_join and sp_transport_leave under the watchdog. */
int sp_train_join(int *argc, char ***argv, struct sp_world *world);
void sp_train_leave(void);

#endif
