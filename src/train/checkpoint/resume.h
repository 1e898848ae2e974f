/* Continues a run from a checkpoint. */
#ifndef SP_TRAIN_RESUME_H
#define SP_TRAIN_RESUME_H

#include "graphs/weights/checkpoint.h"
#include "train/checkpoint/run_state.h"
#include "train/trainer.h"

/* Weights and moments, and their files in a step; the weights may be in shards. */
enum { SP_SAVED_FIELDS = 3 };
extern const struct sp_saved_field {
    enum sp_field field;
    const char *file;
} sp_saved_fields[SP_SAVED_FIELDS];

/* Without --resume the first three do nothing. Finds the newest step of --resume and opens it with its files,
 * t->resumed_dir: sets first_step, and the seed if none was given. Whatever is read of the step from now on lies in these
 * files. 0 or -errno. */
int sp_train_find_resume(struct sp_trainer *t);
/* Checks that the step is undamaged and belongs to this model. All ranks call it, and each
 * checks a share. Needs t->params. 0 or -errno. */
int sp_train_check_resume(struct sp_trainer *t);
/* Fills the graph: with the weights and moments of the layout before this one; or those of the step, whose files it then
 * closes; or with initial ones. 0 or -errno. */
int sp_train_load(struct sp_trainer *t);
/* Sets the place in the data from which the run goes on, once the sizes of a step are known: at the first sample that was
 * not taken yet, whatever the sizes were. 0. */
int sp_train_find_place(struct sp_trainer *t);
/* Says where the run continues, and which settings differ from those of the run that saved the
 * step: with a warning if numbers depend on them. */
void sp_train_tell_changes(const struct sp_trainer *t);

/* The state of the run that a checkpoint after `steps_done` steps records. */
struct sp_run_config sp_train_state(const struct sp_trainer *t, int steps_done);

/* Weights and moments go over into another layout in files of t->choice->carried, as f32: writes those of all blocks,
 * gathered on rank 0, which sp_train_load then finds; and removes the files. All ranks call these. 0 or -errno after one
 * line. */
int sp_train_write_carried(struct sp_trainer *t);
void sp_train_remove_carried(struct sp_trainer *t);

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
