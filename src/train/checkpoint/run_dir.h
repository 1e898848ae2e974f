/*
 * The directory that a run saves into. It has one step-N directory for each checkpoint, links to
 * the files of the newest so that DIR loads as a model, and a lock for as long as a run writes it.
 *
 * A step is written as step-N.tmp, synced, and renamed, so step-N is always complete. Older steps
 * are removed only after a newer one has reached the disk and has proven good, and are renamed
 * before that. So the newest step-N can be loaded at whatever moment a machine stops.
 *
 * The directory is opened once: all that is made, renamed and removed in it is found through its
 * descriptor. Links in it are not followed, and nothing that no run made is touched, see
 * step_dirs.h.
 */
#ifndef SP_RUN_DIR_H
#define SP_RUN_DIR_H

#include "train/checkpoint/step_dirs.h"
#include <stdbool.h>
#include <stdint.h>

struct sp_run_dir {
    struct sp_dir dir;        /* closed: not there yet */
    char *path;               /* as it was given */
    struct sp_made_dirs made; /* directories made on the way to it */
    int lock;                 /* descriptor; -1: not claimed */
    int keep;                 /* complete steps to keep; 0: all */
    long resumed;             /* the step of this directory that the run continues from; -1: none */
    bool overwrite;           /* another run's steps make way for the first step of this one */
    bool made_lock, has_saved;
    bool no_links, is_stuck; /* each is said once */
};

#define SP_RUN_DIR_NONE ((struct sp_run_dir){.dir = {.fd = -1}, .lock = -1, .resumed = -1})

/* Opens the directory at `path`, and locks it if it is there already. 0, or -errno after one
 * line if another run is writing it. To be released in any case. */
int sp_run_dir_lock(struct sp_run_dir *d, const char *path);
/*
 * Claims it, before work starts: makes it, with the directories on the way to it, if it is not
 * there. Refuses one that holds another run, or something that no run made under the name of a
 * step. `resumed`: the step that this run continues from; NULL: none. Clears the remains of a
 * killed process. 0, or -errno after one line.
 */
int sp_run_dir_claim(struct sp_run_dir *d, const struct sp_dir *resumed, int keep, bool overwrite);
/* Removes the directories that the claim made, if nothing was saved. */
void sp_run_dir_release(struct sp_run_dir *d);

/* Checks that the file system has room for `bytes` more: 0, or -ENOSPC after one line. */
int sp_run_dir_room(const struct sp_run_dir *d, uint64_t bytes);

/* Makes an empty step-N.tmp and opens it. Its first file must be state.json, which tells who
 * made it. */
int sp_run_dir_begin(const struct sp_run_dir *d, long step, struct sp_dir *tmp);
/* Removes step-N.tmp. */
void sp_run_dir_abandon(const struct sp_run_dir *d, long step);
/* Once all its files are complete and synced: makes it step-N, and points the links to it. 0 or
 * -errno. */
int sp_run_dir_commit(struct sp_run_dir *d, long step);

/* Says that step `proven` and all before it have proven good: removes the complete steps beyond
 * the newest `keep` of those, and remains. */
void sp_run_dir_prune(struct sp_run_dir *d, long proven);

/*
 * The loss after step N, the newest, is not finite: puts the step aside if an older one is there,
 * and points the links to that. Returns the step that is the newest then; -1: step N stays, because
 * it could not be renamed, after one line.
 */
long sp_run_dir_step_back(struct sp_run_dir *d, long step);

#endif
