/* Prepares a trainer before StarPU starts: checks everything, begins nothing. */
#ifndef SP_TRAIN_PREPARE_H
#define SP_TRAIN_PREPARE_H

#include "train/trainer.h"

/* All ranks call it. 0, or -errno on all of them after one line, with nothing left to free. */
int sp_train_prepare(const struct sp_train_config *cfg, struct sp_trainer **t);
/* Once the graph has ended: makes plan, placement and memory again from the changed cfg.layout
 * and cfg.groups. All ranks call it. 0, or -EINVAL on all after one line. */
int sp_train_lay_out_again(struct sp_trainer *t);
/* sp_transport_join and sp_transport_leave under the watchdog. */
int sp_train_join(int *argc, char ***argv, struct sp_world *world);
void sp_train_leave(void);
/* Undoes sp_train_prepare, once sp_train_stop has undone what came after it. */
void sp_train_release(struct sp_trainer *t);

#endif
