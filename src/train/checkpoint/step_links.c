#include "train/checkpoint/step_links.h"
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Is `name` a link to the same name in a step-N beside it? */
static bool is_ours(const struct sp_dir *run, const char *name)
{
    char target[SP_STEP_NAME + 256];
    ssize_t n = readlinkat(run->fd, name, target, sizeof target - 1);
    char *slash;

    if (n <= 0)
        return false;
    target[n] = '\0';
    slash = strchr(target, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return sp_step_number(target, "") >= 0 && !strcmp(slash + 1, name);
}

/* ---- making ----------------------------------------------------------------------------- */

/* Points `name` at step/name: a new link under another name, renamed over the old one. 0; or, without a word, the errno
 * with which none can be made; or -errno after one line. */
static int point(const struct sp_dir *run, const char *step, const char *name)
{
    char target[SP_STEP_NAME + 256], from[300];

    snprintf(target, sizeof target, "%s/%s", step, name);
    snprintf(from, sizeof from, ".%s.new", name);
    unlinkat(run->fd, from, 0);
    if (symlinkat(target, run->fd, from))
        return errno == EEXIST
                   ? sp_error(EEXIST, "cannot replace %s/%s: cannot make a link %s/%s: %s",
                              run->path, name, run->path, from, strerror(EEXIST))
                   : errno;
    if (!renameat(run->fd, from, run->fd, name))
        return 0;
    sp_error(errno, "cannot replace %s/%s: %s", run->path, name, strerror(errno));
    unlinkat(run->fd, from, 0);
    return -EIO;
}

static void remove_link(const struct sp_dir *run, const char *name)
{
    if (is_ours(run, name))
        unlinkat(run->fd, name, 0);
}

/* Those to files that the step does not have. */
static void remove_stale(const struct sp_dir *run, char *const *kept, int n_kept)
{
    char **names;
    int n;

    if (sp_weights_list(run, &names, &n))
        return;
    for (int i = 0; i < n; i++) {
        bool keep = false;

        for (int k = 0; k < n_kept; k++)
            keep = keep || !strcmp(names[i], kept[k]);
        if (!keep)
            remove_link(run, names[i]);
    }
    sp_weights_free_list(names, n);
}

int sp_step_link(const struct sp_dir *run, const char *step)
{
    struct sp_dir dir;
    char **names;
    int n, err = sp_dir_open_in(run, step, true, &dir);

    if (err)
        return sp_error(-err, "%s/%s: cannot be read: %s", run->path, step, strerror(-err));
    err = sp_weights_list(&dir, &names, &n);
    sp_dir_close(&dir);
    if (err)
        return err;
    /*
     * Shards of two steps must never be read as one model: their index goes first and comes last.
     * What a reader finds in between, shards without an index or two forms, it refuses.
     */
    remove_link(run, SP_WEIGHTS_INDEX);
    err = point(run, step, "config.json");
    for (int i = 0; i < n && !err; i++)
        err = point(run, step, names[i]);
    if (!err)
        remove_stale(run, names, n);
    sp_weights_free_list(names, n);
    if (err <= 0)
        return err;
    sp_step_unlink(run); /* some may lead to an older step */
    sp_warn("%s: no symbolic links can be made there (%s): %s itself does not load as a model, "
            "%s/%s does",
            run->path, strerror(err), run->path, run->path, step);
    return 1;
}

void sp_step_unlink(const struct sp_dir *run)
{
    remove_link(run, SP_WEIGHTS_INDEX);
    remove_link(run, "config.json");
    remove_stale(run, NULL, 0);
}

/* ---- a model that is not the run's ------------------------------------------------------ */

static bool is_foreign(const struct sp_dir *run, const char *name, struct stat *st)
{
    return sp_dir_has(run, name, st) && !is_ours(run, name);
}

/* Calls `fn` with each of its names. False: the directory cannot be read. */
static bool each_foreign(const struct sp_dir *run,
                         void (*fn)(const struct sp_dir *run, const char *name,
                                    const struct stat *st, void *arg),
                         void *arg)
{
    struct stat st;
    char **names;
    int n;

    if (sp_weights_list(run, &names, &n))
        return false;
    if (is_foreign(run, "config.json", &st))
        fn(run, "config.json", &st, arg);
    for (int i = 0; i < n; i++)
        if (is_foreign(run, names[i], &st))
            fn(run, names[i], &st, arg);
    sp_weights_free_list(names, n);
    return true;
}

struct foreign {
    char *names;
    size_t n;
    bool fixed;
};

static void note_name(const struct sp_dir *run, const char *name, const struct stat *st, void *arg)
{
    static const char more[] = " and others";
    struct foreign *f = arg;
    size_t used = strlen(f->names);

    (void)run;
    if (used + 2 + strlen(name) + sizeof more <= f->n)
        snprintf(f->names + used, f->n - used, "%s%s", used ? ", " : "", name);
    else if (used < sizeof more || strcmp(f->names + used + 1 - sizeof more, more))
        snprintf(f->names + used, f->n - used, "%s", more);
    f->fixed = f->fixed || S_ISDIR(st->st_mode);
}

bool sp_step_foreign_model(const struct sp_dir *run, char *names, size_t n, bool *fixed)
{
    struct foreign f = {.names = names, .n = n};
    bool read;

    names[0] = '\0';
    read = each_foreign(run, note_name, &f);
    *fixed = f.fixed;
    return read;
}

static void remove_name(const struct sp_dir *run, const char *name, const struct stat *st,
                        void *arg)
{
    (void)st, (void)arg;
    unlinkat(run->fd, name, 0);
}

void sp_step_remove_foreign_model(const struct sp_dir *run)
{
    each_foreign(run, remove_name, NULL);
}
