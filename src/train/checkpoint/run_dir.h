/*
 * The directory that a run saves into: one step-N directory a checkpoint, links to the files of the
 * newest so that DIR loads as a model, and a lock for as long as a run writes it.
 *
 * A step is written as step-N.tmp, synced, and renamed: step-N is always whole. Older steps are
 * removed when that has reached the disk, and are renamed first. So whatever moment a machine stops
 * at, the newest step-N can be loaded.
 */
#ifndef SP_RUN_DIR_H
#define SP_RUN_DIR_H

#include "train/checkpoint/step_dirs.h"
#include <stdbool.h>
#include <stdint.h>

struct sp_run_dir {
    char path[SP_RUN_PATH - 300];
    int lock;       /* descriptor; -1: not claimed */
    int keep;       /* whole steps to keep; 0: all */
    bool overwrite; /* steps of another run are there, to be replaced by the first of this one */
};

/* The directory at `path`: locked, if it is there already. 0, or -errno after one line: another run is
 * writing it. */
int sp_run_dir_lock(struct sp_run_dir *d, const char *path);
/*
 * Then, before work starts: makes it if it is not there, and sees that it holds no other run:
 * `resumed` is the path of the step that this run goes on from, NULL: none. Clears what a killed
 * process left. 0, or -errno after one line; to be released in the end.
 */
int sp_run_dir_claim(struct sp_run_dir *d, const char *resumed, int keep, bool overwrite);
void sp_run_dir_release(struct sp_run_dir *d);

/* Whether the file system has room for `bytes` more: 0, or -ENOSPC after one line. */
int sp_run_dir_room(const struct sp_run_dir *d, uint64_t bytes);

/* Makes step-N.tmp, empty: its path. */
int sp_run_dir_begin(const struct sp_run_dir *d, long step, char path[SP_RUN_PATH]);
/* Removes it. */
void sp_run_dir_abandon(const struct sp_run_dir *d, long step);
/* Its files are complete and synced: it becomes step-N, and the links follow. 0 or -errno. */
int sp_run_dir_commit(struct sp_run_dir *d, long step);

/* Removes whole steps beyond the newest `keep`, and remains. */
void sp_run_dir_prune(const struct sp_run_dir *d);

/*
 * The run diverged right after it had saved step N: puts that aside if an older one is there, and
 * points the links to it. The step that is the newest then; -1: there was no older one.
 */
long sp_run_dir_step_back(const struct sp_run_dir *d, long step);

#endif
