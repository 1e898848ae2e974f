#define _GNU_SOURCE /* renameat2 */
#include "train/checkpoint/run_dir.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK ".lock"

/* ---- locking ---------------------------------------------------------------------------- */

/* Opens the lock file. Its descriptor; -ENOENT: it is not there and must not be made; or -errno after one line. */
static int open_lock(struct sp_run_dir *d, bool create)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = openat(d->dir.fd, LOCK, flags);
    struct stat st;

    if (fd < 0 && errno == ENOENT && create) {
        fd = openat(d->dir.fd, LOCK, flags | O_CREAT, 0666);
        d->made_lock = fd >= 0;
    }
    if (fd < 0 && !create)
        return -ENOENT; /* an error is printed when the file must be made */
    if (fd < 0 && errno != ELOOP && errno != EISDIR)
        return sp_error(errno, "cannot write %s: %s", d->path, strerror(errno));
    if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode))
        return fd;
    if (fd >= 0)
        close(fd);
    return sp_error(EEXIST, "--save %s: %s/" LOCK " is no file of a run; remove it", d->path,
                    d->path);
}

/* Refuses, and says which process has the lock. */
static int refuse_locked(const struct sp_run_dir *d, int fd)
{
    char holder[128] = "";

    if (read(fd, holder, sizeof holder - 1) > 0)
        holder[strcspn(holder, "\n")] = '\0';
    return sp_error(EBUSY, "--save %s: another run is writing it (%s)", d->path,
                    holder[0] ? holder : "its lock is taken");
}

static int sign_lock(const struct sp_run_dir *d, int fd)
{
    char host[128] = "";

    gethostname(host, sizeof host - 1);
    if (!ftruncate(fd, 0) && dprintf(fd, "process %ld on %s\n", (long)getpid(), host) > 0)
        return 0;
    return sp_error(errno, "cannot write %s/" LOCK ": %s", d->path, strerror(errno));
}

/* Locks the directory for one writer; without `create` only if it had one before. On a file
 * system without locks it only warns. */
static int lock(struct sp_run_dir *d, bool create)
{
    struct stat st;
    int fd, err;

    do {
        fd = open_lock(d, create);
        if (fd < 0)
            return !create && fd == -ENOENT ? 0 : fd;
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            err = errno == EWOULDBLOCK ? refuse_locked(d, fd) : 0;
            if (err)
                goto err_close;
            sp_warn("%s cannot be locked (%s): make sure that no other run saves there", d->path,
                    strerror(errno));
        }
        err = fstat(fd, &st) || st.st_nlink ? 0 : -EAGAIN; /* removed by the run that held it */
        if (err)
            close(fd);
    } while (err);
    err = sign_lock(d, fd);
    if (err && d->made_lock)
        unlinkat(d->dir.fd, LOCK, 0);
    if (err)
        goto err_close;
    d->lock = fd;
    return 0;

err_close:
    close(fd);
    return err;
}

/* ---- the contents ------------------------------------------------------------------------- */

/* The number of the resumed step if it is one of this directory's, otherwise -1. */
static long find_resumed(const struct sp_run_dir *d, const struct sp_dir *resumed,
                         const char *suffix)
{
    char name[SP_STEP_NAME];
    struct stat st;

    for (long n = SP_ANY_STEP; (n = sp_step_before(&d->dir, suffix, n, name)) >= 0;)
        if (!fstatat(d->dir.fd, name, &st, 0) && sp_dir_is(resumed, &st))
            return n;
    return -1;
}

/* Refuses anything that no run made under the name of a step above `here`, or of a step that is
 * put aside. */
static int refuse_foreign(const struct sp_run_dir *d, const char *suffix, long here)
{
    char name[SP_STEP_NAME];

    for (long n = SP_ANY_STEP; (n = sp_step_before(&d->dir, suffix, n, name)) > here;)
        if (sp_step_look(&d->dir, name) == SP_STEP_FOREIGN)
            return sp_error(EEXIST,
                            "--save %s: %s/%s is in the way: no directory that a run made; move it "
                            "elsewhere",
                            d->path, d->path, name);
    return 0;
}

/* With --overwrite: checks that everything that must make way can do so. */
static int check_replaced(struct sp_run_dir *d, long newest, long here)
{
    char model[240];
    bool fixed;
    int err = refuse_foreign(d, "", here);

    err = err ? err : refuse_foreign(d, ".replaced", -1);
    if (err)
        return err;
    sp_step_foreign_model(&d->dir, model, sizeof model, &fixed);
    if (fixed)
        return sp_error(EEXIST,
                        "--save %s: it holds a directory with the name of a file (%s); take "
                        "another directory",
                        d->path, model);
    d->overwrite = (newest >= 0 && newest != here) || model[0];
    return 0;
}

/* Checks that no steps of another run would be lost. */
static int check_holds(struct sp_run_dir *d, const struct sp_dir *resumed, bool overwrite)
{
    long newest = sp_step_highest(&d->dir, "", SP_ANY_STEP), here = -1;
    char model[240];
    bool fixed;
    int err;

    newest = newest < 0 ? sp_step_highest(&d->dir, ".replaced", SP_ANY_STEP) : newest;
    d->resumed = resumed ? find_resumed(d, resumed, "") : -1;
    here = d->resumed < 0 && resumed ? find_resumed(d, resumed, ".replaced") : d->resumed;
    err = refuse_foreign(d, ".tmp", here > 0 ? here - 1 : -1);
    if (err || overwrite)
        return err ? err : check_replaced(d, newest, here);
    if (!sp_step_foreign_model(&d->dir, model, sizeof model, &fixed))
        return -EACCES;
    if (model[0])
        return sp_error(EEXIST,
                        "--save %s: it holds a model (%s) that no run saved there; take another "
                        "directory, or --overwrite",
                        d->path, model);
    if (newest >= 0 && here < 0)
        return sp_error(EEXIST,
                        "--save %s: it holds step %ld of another run; go on from it with --resume "
                        "%s, take another directory, or --overwrite",
                        d->path, newest, d->path);
    if (newest > here)
        return sp_error(EEXIST,
                        "--save %s: it holds step %ld, later than the resumed step %ld; take "
                        "another directory, or --overwrite",
                        d->path, newest, here);
    return 0;
}

/* ---- claiming --------------------------------------------------------------------------- */

static int open_dir(struct sp_run_dir *d)
{
    int err = sp_dir_open(d->path, &d->dir);

    return err && err != -ENOENT ? sp_error(-err, "cannot write %s: %s", d->path, strerror(-err))
                                 : err;
}

int sp_run_dir_lock(struct sp_run_dir *d, const char *path)
{
    int err;

    *d = SP_RUN_DIR_NONE;
    d->path = strdup(path);
    if (!d->path)
        return sp_error(ENOMEM, "--save: no memory for a path");
    err = open_dir(d);
    if (err)
        return err == -ENOENT ? 0 : err;
    return lock(d, false);
}

int sp_run_dir_claim(struct sp_run_dir *d, const struct sp_dir *resumed, int keep, bool overwrite)
{
    char model[240];
    bool fixed;
    int err = 0;

    d->keep = keep;
    if (d->dir.fd >= 0)
        err = check_holds(d, resumed, overwrite); /* a refused directory stays as it is */
    else
        err = sp_dir_make(d->path, &d->made);
    if (!err && d->dir.fd < 0) {
        err = open_dir(d);
        if (err == -ENOENT)
            sp_error(ENOENT, "cannot write %s: %s", d->path, strerror(ENOENT));
    }
    if (!err && d->lock < 0) {
        err = lock(d, true);
        err = err ? err : check_holds(d, resumed, overwrite); /* another may have come before */
    }
    if (err)
        return err;
    sp_step_foreign_model(&d->dir, model, sizeof model, &fixed);
    if (model[0])
        sp_warn("--save %s: --overwrite replaces %s, which no run saved there", d->path, model);
    sp_step_remove_all(&d->dir, ".tmp"); /* what a killed process left */
    sp_step_remove_all(&d->dir, ".removed");
    return 0;
}

void sp_run_dir_release(struct sp_run_dir *d)
{
    if (d->lock >= 0 && d->made_lock && !d->has_saved)
        unlinkat(d->dir.fd, LOCK, 0);
    if (d->lock >= 0)
        close(d->lock);
    sp_dir_close(&d->dir);
    sp_dir_made_end(&d->made, !d->has_saved);
    free(d->path);
    *d = SP_RUN_DIR_NONE;
}

int sp_run_dir_room(const struct sp_run_dir *d, uint64_t bytes)
{
    const double MiB = 1024 * 1024;
    struct statvfs fs;
    double room;

    if (fstatvfs(d->dir.fd, &fs))
        return sp_error(errno, "cannot write %s: %s", d->path, strerror(errno));
    room = (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)bytes <= room)
        return 0;
    return sp_error(ENOSPC, "--save %s: a checkpoint takes %.1f MiB, %.1f are free there", d->path,
                    (double)bytes / MiB, room / MiB);
}

/* ---- a step ----------------------------------------------------------------------------- */

static int in_the_way(const struct sp_run_dir *d, const char *name)
{
    return sp_error(EEXIST, "%s/%s is in the way: no directory that a run made", d->path, name);
}

int sp_run_dir_begin(const struct sp_run_dir *d, long step, struct sp_dir *tmp)
{
    char name[SP_STEP_NAME], final[SP_STEP_NAME];
    int err;

    sp_step_name(step, ".tmp", name);
    sp_step_name(step, "", final);
    if (sp_step_look(&d->dir, final) == SP_STEP_FOREIGN)
        return in_the_way(d, final);
    sp_step_remove_files(&d->dir, name);
    if (mkdirat(d->dir.fd, name, 0777))
        return errno == EEXIST ? in_the_way(d, name)
                               : sp_error(errno, "cannot make directory %s/%s: %s", d->path, name,
                                          strerror(errno));
    err = sp_dir_open_in(&d->dir, name, false, tmp);
    return err ? sp_error(-err, "cannot open directory %s/%s: %s", d->path, name, strerror(-err))
               : 0;
}

void sp_run_dir_abandon(const struct sp_run_dir *d, long step)
{
    char name[SP_STEP_NAME];

    sp_step_name(step, ".tmp", name);
    sp_step_remove_files(&d->dir, name);
}

/* Links the files of a step, which are on the disk before an older step goes. */
static int link_step(struct sp_run_dir *d, long step)
{
    char name[SP_STEP_NAME];
    int err;

    if (d->no_links)
        return 0;
    sp_step_name(step, "", name);
    err = sp_step_link(&d->dir, name);
    sp_dir_sync(&d->dir);
    d->no_links = err > 0;
    return err > 0 ? 0 : err;
}

/* Renames step N, which a run made, to step-N<suffix>. 0 or -errno after one line. */
static int rename_step(const struct sp_run_dir *d, long step, const char *suffix)
{
    char from[SP_STEP_NAME], to[SP_STEP_NAME];

    sp_step_name(step, "", from);
    sp_step_name(step, suffix, to);
    if (sp_step_look(&d->dir, from) != SP_STEP_OURS)
        return in_the_way(d, from);
    sp_step_remove_files(&d->dir, to);
    if (sp_step_look(&d->dir, to) != SP_STEP_NONE)
        return in_the_way(d, to);
    if (renameat(d->dir.fd, from, d->dir.fd, to))
        return sp_error(errno, "cannot rename %s/%s to %s: %s", d->path, from, to, strerror(errno));
    return 0;
}

/* Puts aside the later steps of the run that is replaced, the newest last: the new run may have
 * lower numbers. */
static int put_aside(const struct sp_run_dir *d)
{
    long newest = sp_step_highest(&d->dir, "", SP_ANY_STEP), n = newest;
    int err = 0;

    sp_step_unlink(&d->dir);
    sp_dir_sync(&d->dir);
    while (!err && (n = sp_step_highest(&d->dir, "", n)) > d->resumed)
        err = rename_step(d, n, ".replaced");
    sp_dir_sync(&d->dir);
    if (!err && newest > d->resumed)
        err = rename_step(d, newest, ".replaced");
    sp_dir_sync(&d->dir);
    return err;
}

/* Renames the finished step into place. A step of that name is exchanged in one go, if the file
 * system can. */
static int put_in_place(const struct sp_run_dir *d, long step)
{
    char from[SP_STEP_NAME], to[SP_STEP_NAME];
    enum sp_step_kind kind;
    int fd = d->dir.fd, err;

    sp_step_name(step, ".tmp", from);
    sp_step_name(step, "", to);
    kind = sp_step_look(&d->dir, to);
    if (kind == SP_STEP_FOREIGN)
        return in_the_way(d, to);
    /* then the old step has the temporary name */
    if (kind == SP_STEP_OURS && !renameat2(fd, from, fd, to, RENAME_EXCHANGE))
        return 0;
    err = kind == SP_STEP_OURS ? rename_step(d, step, ".replaced") : 0;
    if (err)
        return err;
    if (renameat(fd, from, fd, to))
        return sp_error(errno, "cannot rename %s/%s to %s: %s", d->path, from, to, strerror(errno));
    return 0;
}

int sp_run_dir_commit(struct sp_run_dir *d, long step)
{
    int err = d->overwrite ? put_aside(d) : 0;

    err = err ? err : put_in_place(d, step);
    if (err)
        return err;
    d->has_saved = true;
    sp_dir_sync(&d->dir);
    if (d->overwrite)
        sp_step_remove_foreign_model(&d->dir);
    d->overwrite = false;
    err = link_step(d, step);
    if (!err)
        sp_run_dir_abandon(d, step); /* removes the old step after an exchange */
    return err;
}

/* ---- old steps -------------------------------------------------------------------------- */

/* Removes an old step; says once that one cannot be removed. It is renamed first, because a step-N must be complete or
 * absent. */
static void remove_old(struct sp_run_dir *d, long step)
{
    bool quiet = sp_error_quiet(true);
    int err = rename_step(d, step, ".removed");
    char name[SP_STEP_NAME];

    sp_error_quiet(quiet);
    sp_step_name(step, ".removed", name);
    if (!err)
        sp_step_remove_files(&d->dir, name);
    if (!err || d->is_stuck)
        return;
    d->is_stuck = true;
    sp_warn("%s: step %ld is to be removed and stays: step-%06ld.removed is in the way", d->path,
            step, step);
}

void sp_run_dir_prune(struct sp_run_dir *d, long proven)
{
    char name[SP_STEP_NAME];
    int kept = 0;

    for (long n = proven + 1; d->keep && (n = sp_step_before(&d->dir, "", n, name)) >= 0;)
        if (sp_step_look(&d->dir, name) == SP_STEP_OURS && kept++ >= d->keep)
            remove_old(d, n);
    sp_step_remove_all(&d->dir, ".removed");
    sp_step_remove_all(&d->dir, ".replaced");
    sp_step_remove_all(&d->dir, ".diverged");
}

long sp_run_dir_step_back(struct sp_run_dir *d, long step)
{
    long older = sp_step_highest(&d->dir, "", step);

    if (older < 0 || rename_step(d, step, ".diverged"))
        return -1;
    sp_dir_sync(&d->dir);
    link_step(d, older);
    return older;
}
