/*
 * The step-N directories of a run: one a checkpoint. What else has such a name:
 *
 *   step-N            whole
 *   step-N.tmp        being written
 *   step-N.replaced   of another run, which the first step of this one replaces (--overwrite)
 *   step-N.diverged   made by an update after which the loss was not finite
 *   step-N.removed    being removed
 */
#ifndef SP_STEP_DIRS_H
#define SP_STEP_DIRS_H

#include <stdbool.h>

enum { SP_RUN_PATH = 4400 };

/*
 * The newest whole step in `dir`, or `dir` itself if it is one: its path, and its number. 0, or
 * -errno after one line.
 */
int sp_step_find(const char *dir, char path[SP_RUN_PATH], long *step);

/* N of "step-N<suffix>", -1 of other names. */
long sp_step_number(const char *name, const char *suffix);
void sp_step_path(const char *dir, long step, const char *suffix, char path[SP_RUN_PATH]);

/* The highest N below `limit` of the step-N<suffix> in `dir`, -1: none. */
#define SP_ANY_STEP 0x7fffffffffffffffL
long sp_step_highest(const char *dir, const char *suffix, long limit);

/* Is it the name of a file of a checkpoint, or of what a killed process left of one
 * ("NAME.tmp-...")? */
bool sp_step_file(const char *name);

/* Removes a directory of checkpoint files: these files, and it if there were no others. */
void sp_step_remove_files(const char *path);
/* Removes step N. */
void sp_step_remove(const char *dir, long step);
/* Removes every step-N<suffix>; not for steps themselves. */
void sp_step_remove_all(const char *dir, const char *suffix);

#endif
