#define _GNU_SOURCE /* renameat2 */
#include "train/checkpoint/run_dir.h"
#include "model/files/output.h"
#include "sp_error.h"
#include "train/checkpoint/step_links.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- claiming --------------------------------------------------------------------------- */

/* One writer a directory; without `create` only where there was one before. Where the file system has no locks nothing can be done. */
static int lock(struct sp_run_dir *d, bool create)
{
    char path[SP_RUN_PATH], holder[128] = "";
    int fd, err;

    snprintf(path, sizeof path, "%s/.lock", d->path);
    fd = open(path, O_RDWR | (create ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0 && !create)
        return 0; /* said when it is to be made */
    if (fd < 0)
        return sp_error(errno, "cannot write %s: %s", d->path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        err = errno;
        if (err == EWOULDBLOCK && read(fd, holder, sizeof holder - 1) > 0)
            holder[strcspn(holder, "\n")] = '\0';
        if (err == EWOULDBLOCK) {
            close(fd);
            return sp_error(EBUSY, "--save %s: another run is writing it (%s)", d->path,
                            holder[0] ? holder : "its lock is taken");
        }
        sp_warn("%s cannot be locked (%s): make sure that no other run saves there", d->path,
                strerror(err));
    }
    gethostname(holder, sizeof holder - 1);
    if (ftruncate(fd, 0) || dprintf(fd, "process %ld on %s\n", (long)getpid(), holder) < 0) {
        err = errno;
        close(fd);
        return sp_error(err, "cannot write %s: %s", path, strerror(err));
    }
    d->lock = fd;
    return 0;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Is the resumed step one of this directory's? Its number then, -1 otherwise. */
static long resumed_here(const struct sp_run_dir *d, const char *resumed)
{
    char path[SP_RUN_PATH];
    const char *name = strrchr(resumed, '/');
    long n = sp_step_number(name ? name + 1 : resumed, "");

    n = n < 0 ? sp_step_number(name ? name + 1 : resumed, ".replaced") : n;
    snprintf(path, sizeof path, "%s/%s", d->path, name ? name + 1 : resumed);
    return n >= 0 && same_file(path, resumed) ? n : -1;
}

/* A file that a step's links would replace. */
static const char *foreign_model(const struct sp_run_dir *d)
{
    static const char *const names[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    char path[SP_RUN_PATH];
    struct stat st;

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", d->path, names[i]);
        if (!lstat(path, &st) && !S_ISLNK(st.st_mode))
            return names[i];
    }
    return NULL;
}

/* Sees that nobody's steps would be lost. */
static int check_holds(struct sp_run_dir *d, const char *resumed, bool overwrite)
{
    long newest = sp_step_highest(d->path, "", SP_ANY_STEP),
         here = resumed ? resumed_here(d, resumed) : -1;
    const char *foreign = foreign_model(d);

    newest = newest < 0 ? sp_step_highest(d->path, ".replaced", SP_ANY_STEP) : newest;
    if (overwrite) {
        d->overwrite = newest >= 0 && newest != here;
        return 0;
    }
    if (foreign)
        return sp_error(EEXIST,
                        "--save %s: it holds a model (%s) that no run saved there; take another "
                        "directory, or --overwrite",
                        d->path, foreign);
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

int sp_run_dir_lock(struct sp_run_dir *d, const char *path)
{
    *d = (struct sp_run_dir){.lock = -1};
    if (strlen(path) >= sizeof d->path)
        return sp_error(ENAMETOOLONG, "--save: a path of %zu bytes is too long", strlen(path));
    strcpy(d->path, path);
    return lock(d, false);
}

int sp_run_dir_claim(struct sp_run_dir *d, const char *resumed, int keep, bool overwrite)
{
    const char *path = d->path;
    int err;

    d->keep = keep;
    err = check_holds(d, resumed, overwrite); /* what is refused is left as it is */
    if (err)
        goto err_release;
    if (!mkdir(path, 0777))
        sp_output_sync_parent(path);
    else if (errno != EEXIST)
        return sp_error(errno, "cannot make directory %s: %s", path, strerror(errno));
    if (d->lock < 0) {
        err = lock(d, true);
        err = err ? err : check_holds(d, resumed, overwrite); /* who may have come before */
    }
    if (err)
        goto err_release;
    sp_step_remove_all(path, ".tmp"); /* what a killed process left */
    sp_step_remove_all(path, ".removed");
    return 0;

err_release:
    sp_run_dir_release(d);
    return err;
}

void sp_run_dir_release(struct sp_run_dir *d)
{
    if (d->lock >= 0)
        close(d->lock);
    d->lock = -1;
}

int sp_run_dir_room(const struct sp_run_dir *d, uint64_t bytes)
{
    const double MiB = 1024 * 1024;
    struct statvfs fs;
    double room;

    if (statvfs(d->path, &fs))
        return sp_error(errno, "cannot write %s: %s", d->path, strerror(errno));
    room = (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)bytes <= room)
        return 0;
    return sp_error(ENOSPC, "--save %s: a checkpoint takes %.1f MiB, %.1f are free there", d->path,
                    (double)bytes / MiB, room / MiB);
}

/* ---- a step ----------------------------------------------------------------------------- */

int sp_run_dir_begin(const struct sp_run_dir *d, long step, char path[SP_RUN_PATH])
{
    sp_step_path(d->path, step, ".tmp", path);
    sp_step_remove_files(path);
    if (mkdir(path, 0777))
        return sp_error(errno, "cannot make directory %s: %s", path, strerror(errno));
    return 0;
}

void sp_run_dir_abandon(const struct sp_run_dir *d, long step)
{
    char path[SP_RUN_PATH];

    sp_step_path(d->path, step, ".tmp", path);
    sp_step_remove_files(path);
}

/* They are on the disk before an older step goes. */
static int link_step(const struct sp_run_dir *d, long step)
{
    char name[64];
    int err;

    snprintf(name, sizeof name, "step-%06ld", step);
    err = sp_step_link(d->path, name);
    sp_output_sync(d->path);
    return err;
}

/* The steps of the run that is replaced make way: the new one may have lower numbers. */
static void put_aside(const struct sp_run_dir *d)
{
    char from[SP_RUN_PATH], to[SP_RUN_PATH];
    long n;

    sp_step_unlink(d->path);
    sp_output_sync(d->path);
    while ((n = sp_step_highest(d->path, "", SP_ANY_STEP)) >= 0) {
        sp_step_path(d->path, n, "", from);
        sp_step_path(d->path, n, ".replaced", to);
        sp_step_remove_files(to);
        if (rename(from, to))
            return;
    }
    sp_output_sync(d->path);
}

/* A step that is there already is exchanged in one go, where the file system can. */
static int put_in_place(const char *from, const char *to)
{
    char old[SP_RUN_PATH + 16];

    if (access(to, F_OK))
        return rename(from, to) ? -errno : 0;
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE))
        return 0; /* the old one has the name of the remains now */
    snprintf(old, sizeof old, "%s.replaced", to);
    if (rename(to, old) || rename(from, to))
        return -errno;
    return 0;
}

int sp_run_dir_commit(struct sp_run_dir *d, long step)
{
    char tmp[SP_RUN_PATH], final[SP_RUN_PATH];
    int err;

    sp_step_path(d->path, step, ".tmp", tmp);
    sp_step_path(d->path, step, "", final);
    if (d->overwrite)
        put_aside(d);
    err = put_in_place(tmp, final);
    if (err)
        return sp_error(-err, "cannot rename %s to %s: %s", tmp, final, strerror(-err));
    d->overwrite = false;
    sp_output_sync(d->path);
    err = link_step(d, step);
    if (!err)
        sp_run_dir_abandon(d, step); /* what was exchanged */
    return err;
}

/* ---- old steps -------------------------------------------------------------------------- */

void sp_run_dir_prune(const struct sp_run_dir *d)
{
    long n = SP_ANY_STEP;

    for (int i = 0; d->keep && n >= 0 && i < d->keep; i++)
        n = sp_step_highest(d->path, "", n);
    while (d->keep && n >= 0 && (n = sp_step_highest(d->path, "", n)) >= 0)
        sp_step_remove(d->path, n);
    sp_step_remove_all(d->path, ".removed");
    sp_step_remove_all(d->path, ".replaced");
    sp_step_remove_all(d->path, ".diverged");
}

long sp_run_dir_step_back(const struct sp_run_dir *d, long step)
{
    char from[SP_RUN_PATH], to[SP_RUN_PATH];
    long older = sp_step_highest(d->path, "", step);

    if (older < 0)
        return -1;
    sp_step_path(d->path, step, "", from);
    sp_step_path(d->path, step, ".diverged", to);
    sp_step_remove_files(to);
    if (rename(from, to))
        return -1;
    sp_output_sync(d->path);
    link_step(d, older);
    return older;
}
