/*
 * The step-N directories of a run, one for each checkpoint. Their names:
 *
 *   step-N            complete
 *   step-N.tmp        being written
 *   step-N.replaced   another run's, which this one replaces (--overwrite)
 *   step-N.diverged   made by an update after which the loss was not finite
 *   step-N.removed    being removed
 *
 * A run made it if it is a directory, no link, and has a state.json that names a step: that file is
 * written first and removed last. Only such a directory is renamed or removed, and in it only files
 * of a checkpoint.
 */
#ifndef SP_STEP_DIRS_H
#define SP_STEP_DIRS_H

#include "model/files/dir.h"
#include <jansson.h>
#include <stdbool.h>

enum { SP_RUN_PATH = 4400, SP_STEP_NAME = 48 };

/*
 * Opens the newest complete step in `dir`, or `dir` itself if it is one, with all files of the
 * checkpoint. This works while a running run removes older steps. To be closed. 0, or -errno after
 * one line.
 */
int sp_step_open(const char *dir, struct sp_dir *step);

/* N of "step-N<suffix>" in the form written here; -1 for other names. */
long sp_step_number(const char *name, const char *suffix);
void sp_step_name(long step, const char *suffix, char name[SP_STEP_NAME]);

/* The highest N below `limit` among the names step-N<suffix> in `run`, whoever made them; -1:
 * none. */
#define SP_ANY_STEP 0x7fffffffffffffffL
long sp_step_highest(const struct sp_dir *run, const char *suffix, long limit);
/* The same, and if there is one its name. A loop that begins with SP_ANY_STEP and goes on with each result walks all of
 * them, the highest first. */
long sp_step_before(const struct sp_dir *run, const char *suffix, long limit,
                    char name[SP_STEP_NAME]);

/* Bytes of the files of step N. */
long long sp_step_bytes(const struct sp_dir *run, long step);

enum sp_step_kind {
    SP_STEP_NONE,
    SP_STEP_OURS,   /* a run made it */
    SP_STEP_FOREIGN /* a link, a file, or a directory that no run made */
};
enum sp_step_kind sp_step_look(const struct sp_dir *run, const char *name);

/* The state.json of a step; NULL: it has none that can be read. */
json_t *sp_step_state(const struct sp_dir *step);

/*
 * The names of the model's companions (companions.h) that are files of the step. state.json lists
 * them; it is written before them and removed after them. Any other file is somebody else's. NULL:
 * none.
 */
json_t *sp_step_companions(const struct sp_dir *step);
bool sp_step_has_companion(const json_t *companions, const char *name);
#define SP_STEP_COMPANIONS "files" /* the key of that list */

/* Removes the files of a checkpoint from a directory that a run made, and the directory if it is
 * empty then. */
void sp_step_remove_files(const struct sp_dir *run, const char *name);
/* Removes every step-N<suffix>. Not for steps themselves. */
void sp_step_remove_all(const struct sp_dir *run, const char *suffix);

/*
 * ---- step_links.c: the links of a run's directory to its newest step --------------------------
 *
 * They make the directory a model for other programs.
 */

/*
 * Points the links of `run` at the configuration, the weights and their companions in its directory
 * `step`, whatever files they are in, and removes links of an earlier form. A file that has a
 * companion's name and is no link of a run's stays. At no moment do the links make a model of two
 * steps. 0; 1 after a warning: no links can be made there, and none is left; or -errno after one
 * line.
 */
int sp_step_link(const struct sp_dir *run, const char *step);

/* Removes the links, before the step that they lead to goes. */
void sp_step_unlink(const struct sp_dir *run);

/*
 * Finds a model at the top of `run` that no run made: lists the names of its configuration and
 * weights in names[n], with commas; empty: none. *fixed: one of them is a directory, which nothing
 * replaces. False: the directory cannot be read.
 */
bool sp_step_foreign_model(const struct sp_dir *run, char *names, size_t n, bool *fixed);
/* Removes that model, if --overwrite replaces it: a link goes, the file it leads to stays. */
void sp_step_remove_foreign_model(const struct sp_dir *run);

#endif
