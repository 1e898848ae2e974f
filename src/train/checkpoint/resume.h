/* Continues a run from a checkpoint. */
#ifndef SP_TRAIN_RESUME_H
#define SP_TRAIN_RESUME_H

#include "train/checkpoint/run_state.h"
#include "train/trainer.h"

/* The file of weights or moments in a step, by enum sp_field. */
extern const char *const sp_field_files[];

/* Without --resume the first three do nothing. Finds the newest step of --resume and opens it with its files,
 * t->resumed_dir: sets first_step, and the seed if none was given. Whatever is read of the step from now on lies in these
 * files. 0 or -errno. */
int sp_train_find_resume(struct sp_trainer *t);
/* Checks that the step is undamaged and belongs to this model. All ranks call it, and each
 * checks a share. Needs t->params. 0 or -errno. */
int sp_train_check_resume(struct sp_trainer *t);
/* Reads the step's moments and closes its files. 0 or -errno. */
int sp_train_load_resume(struct sp_trainer *t);
/* Sets the place in the data from which the run goes on, once the sizes of a step are known: at the first sample that was
 * not taken yet, whatever the sizes were. 0. */
int sp_train_find_place(struct sp_trainer *t);
/* Says where the run continues, and which settings differ from those of the run that saved the
 * step: with a warning if numbers depend on them. */
void sp_train_tell_changes(const struct sp_trainer *t);

/* The state of the run that a checkpoint after `steps_done` steps records. */
struct sp_run_config sp_train_state(const struct sp_trainer *t, int steps_done);

/* ---- restore.c: for `train --resume DIR` alone ------------------------------------------------- */

/*
 * Sets in *cfg, whose `resume` names the run, the options that the resumed step keeps. Relative
 * paths are relative to where the run was started. `goes_on`: if the step is the newest of the
 * run's own directory, this also takes over the files that the run wrote (--save, --log, --trace),
 * with --save as the directory that the step was found in. The texts live as long as the program.
 * 0, or -errno after one line.
 */
int sp_train_restore(struct sp_train_config *cfg, bool goes_on);

#endif
