/* Makes the checkpoints of a run; sp_trainer_save makes one. */
#ifndef SP_TRAIN_SAVE_H
#define SP_TRAIN_SAVE_H

#include "train/trainer.h"

/* Phases of a start on rank 0, unless it is a dry run. Before anything is read: nobody else writes --save DIR from here on.
 * 0 or -errno. */
int sp_train_lock(struct sp_trainer *t);
/* When all else was checked: --save DIR is this run's from here on, see run_dir.h. 0 or -errno. */
int sp_train_claim(struct sp_trainer *t);

/* Step `step` had a finite loss. That proves all that was saved before it, so older checkpoints
 * may go. 0, or -errno of a save that a thread made. */
int sp_train_proven(struct sp_trainer *t, int step);
/* The loss was not finite: puts aside the last save, or the step of DIR that the run continued
 * from, if there is an older one. */
void sp_train_step_back(struct sp_trainer *t);
/* Call it on all ranks after the last save: waits until all is on the disk. Older checkpoints
 * stay, as no loss has proven the last one. 0 or -errno. */
int sp_train_saved_all(struct sp_trainer *t);
/* --dump-grads. All ranks call it. 0, or -errno on rank 0. */
int sp_train_dump_grads(struct sp_trainer *t);

#endif
