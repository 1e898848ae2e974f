/*
 * The directory that a run saves into: one step-N directory a checkpoint, links to the files of the
 * newest so that DIR loads as a model, and a lock for as long as a run writes it.
 *
 * A step is written as step-N.tmp, synced, and renamed: step-N is always whole. Older steps are
 * removed when a newer one has reached the disk and has proven good, and are renamed first. So whatever
 * moment a machine stops at, the newest step-N can be loaded.
 *
 * The directory is opened once: all that is made, renamed and removed in it is found through its
 * descriptor. Links in it are not followed, and what no run made is not touched, see step_dirs.h.
 */
#ifndef SP_RUN_DIR_H
#define SP_RUN_DIR_H

#include "train/checkpoint/step_dirs.h"
#include <stdbool.h>
#include <stdint.h>

struct sp_run_dir {
    struct sp_dir dir;        /* closed: not there yet */
    char *path;               /* as it was given */
    struct sp_made_dirs made; /* on the way to it */
    int lock;                 /* descriptor; -1: not claimed */
    int keep;                 /* whole steps to keep; 0: all */
    long resumed;   /* the step of this directory that the run goes on from; -1: of none */
    bool overwrite; /* what another run left there makes way for the first step of this one */
    bool made_lock, has_saved;
    bool no_links, is_stuck; /* said once */
};

#define SP_RUN_DIR_NONE ((struct sp_run_dir){.dir = {.fd = -1}, .lock = -1, .resumed = -1})

/* The directory at `path`: locked, if it is there already. 0, or -errno after one line: another run is
 * writing it. To be released in any case. */
int sp_run_dir_lock(struct sp_run_dir *d, const char *path);
/*
 * Then, before work starts: makes it with those on the way to it if it is not there, and sees that it holds
 * no other run, and nothing in the place of a step that no run made: `resumed` is the step that this run
 * goes on from, NULL: none. Clears what a killed process left. 0, or -errno after one line.
 */
int sp_run_dir_claim(struct sp_run_dir *d, const struct sp_dir *resumed, int keep, bool overwrite);
/* Removes what the claim made, if nothing was saved. */
void sp_run_dir_release(struct sp_run_dir *d);

/* Whether the file system has room for `bytes` more: 0, or -ENOSPC after one line. */
int sp_run_dir_room(const struct sp_run_dir *d, uint64_t bytes);

/* Makes step-N.tmp, empty, and opens it. Its first file must be state.json, from which its maker is known. */
int sp_run_dir_begin(const struct sp_run_dir *d, long step, struct sp_dir *tmp);
/* Removes it. */
void sp_run_dir_abandon(const struct sp_run_dir *d, long step);
/* Its files are complete and synced: it becomes step-N, and the links follow. 0 or -errno. */
int sp_run_dir_commit(struct sp_run_dir *d, long step);

/* Step `proven` has proven good, with all before it: removes whole steps beyond the newest `keep` of
 * those, and remains. */
void sp_run_dir_prune(struct sp_run_dir *d, long proven);

/*
 * The loss after step N, the newest, is not finite: puts that aside if an older one is there, and points
 * the links to it. The step that is the newest then; -1: step N stays, where it could not be renamed after
 * one line.
 */
long sp_run_dir_step_back(struct sp_run_dir *d, long step);

#endif
