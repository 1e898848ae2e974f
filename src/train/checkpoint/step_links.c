#include "model/files/companions.h"
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* True if `name` is a link to the same name in a step-N of the same directory; step[] gets that
 * step's name. */
static bool find_step(const struct sp_dir *run, const char *name, char step[SP_STEP_NAME + 256])
{
    ssize_t n = readlinkat(run->fd, name, step, SP_STEP_NAME + 255);
    char *slash;

    if (n <= 0)
        return false;
    step[n] = '\0';
    slash = strchr(step, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return sp_step_number(step, "") >= 0 && !strcmp(slash + 1, name);
}

static bool is_ours(const struct sp_dir *run, const char *name)
{
    char step[SP_STEP_NAME + 256];

    return find_step(run, name, step);
}

/* True if it links to a companion of that step, or to nothing; false for a file that a user has
 * put into the step. */
static bool is_to_companion(const struct sp_dir *run, const char *name)
{
    char step[SP_STEP_NAME + 256];
    json_t *companions;
    struct sp_dir dir;
    struct stat st;
    bool is;

    if (!sp_companions_is_name(name) || !find_step(run, name, step))
        return false;
    if (sp_dir_open_in(run, step, true, &dir))
        return true;
    companions = sp_step_companions(&dir);
    is = sp_step_has_companion(companions, name) || !sp_dir_has(&dir, name, &st);
    json_decref(companions);
    sp_dir_close(&dir);
    return is;
}

/* ---- making ----------------------------------------------------------------------------- */

/* Points `name` at step/name: makes a new link under another name and renames it over the old
 * one. 0; the errno, without a line, if no link can be made; or -errno after one line. */
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

/* The files of a step that get links. */
struct linked {
    char **weights;
    int n;
    json_t *companions;
};

static void free_linked(struct linked *l)
{
    sp_dir_free_names(l->weights, l->n);
    json_decref(l->companions);
}

static bool is_linked(const struct linked *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(name, l->weights[i]))
            return true;
    return sp_step_has_companion(l->companions, name);
}

/* Removes the links to weights and companions that the step does not have; NULL: all links. */
static void remove_stale(const struct sp_dir *run, const struct linked *kept)
{
    DIR *d = sp_dir_list(run);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        const char *name = e->d_name;

        if (kept && is_linked(kept, name))
            continue;
        if (sp_weights_is_file(name) ? is_ours(run, name) : is_to_companion(run, name))
            unlinkat(run->fd, name, 0);
    }
    if (d)
        closedir(d);
}

static int list_linked(const struct sp_dir *run, const char *step, struct linked *l)
{
    struct sp_dir dir;
    struct stat st;
    int err = sp_dir_open_in(run, step, true, &dir);

    *l = (struct linked){0};
    if (err)
        return sp_error(-err, "%s/%s: cannot be read: %s", run->path, step, strerror(-err));
    err = sp_weights_list(&dir, &l->weights, &l->n);
    if (!err)
        l->companions = sp_step_companions(&dir);
    for (size_t i = json_array_size(l->companions); i-- > 0;) /* some could not be copied */
        if (!sp_dir_has(&dir, json_string_value(json_array_get(l->companions, i)), &st))
            json_array_remove(l->companions, i);
    sp_dir_close(&dir);
    return err;
}

/* Makes the links to companions. A user's file that has the name of one stays, and that link is
 * not made. */
static int point_companions(const struct sp_dir *run, const char *step, const json_t *companions)
{
    json_t *companion;
    struct stat st;
    int err = 0;
    size_t i;

    json_array_foreach(companions, i, companion)
    {
        const char *name = json_string_value(companion);

        if (!err && (is_ours(run, name) || !sp_dir_has(run, name, &st)))
            err = point(run, step, name);
    }
    return err;
}

int sp_step_link(const struct sp_dir *run, const char *step)
{
    struct linked l;
    int err = list_linked(run, step, &l);

    if (err)
        return err;
    /*
     * Shards of two steps must never be read as one model, so their index goes first and comes back
     * last. In between a reader finds shards without an index, or two forms, and refuses them.
     */
    remove_link(run, SP_WEIGHTS_INDEX);
    err = point(run, step, "config.json");
    err = err ? err : point_companions(run, step, l.companions);
    for (int i = 0; i < l.n && !err; i++)
        err = point(run, step, l.weights[i]);
    if (!err)
        remove_stale(run, &l);
    free_linked(&l);
    if (err <= 0)
        return err;
    sp_step_unlink(run); /* some links may lead to an older step */
    sp_warn("%s: no symbolic links can be made there (%s): %s itself does not load as a model, "
            "%s/%s does",
            run->path, strerror(err), run->path, run->path, step);
    return 1;
}

void sp_step_unlink(const struct sp_dir *run)
{
    remove_link(run, SP_WEIGHTS_INDEX);
    remove_link(run, "config.json");
    remove_stale(run, NULL);
}

/* ---- a model that no run made --------------------------------------------------------------- */

/* Finds, from *at on, the next name of the model's configuration and weights that no run made; NULL: there are no more. */
static const char *next_foreign(const struct sp_dir *run, char **weights, int n, int *at,
                                struct stat *st)
{
    while (*at <= n) {
        const char *name = *at ? weights[*at - 1] : "config.json";

        ++*at;
        if (sp_dir_has(run, name, st) && !is_ours(run, name))
            return name;
    }
    return NULL;
}

/* Adds a name to a list, or that there are others if it has no room. */
static void add_name(char *names, size_t n, const char *name)
{
    static const char more[] = " and others";
    size_t used = strlen(names);

    if (used + 2 + strlen(name) + sizeof more <= n)
        snprintf(names + used, n - used, "%s%s", used ? ", " : "", name);
    else if (used < sizeof more || strcmp(names + used + 1 - sizeof more, more))
        snprintf(names + used, n - used, "%s", more);
}

bool sp_step_foreign_model(const struct sp_dir *run, char *names, size_t n, bool *fixed)
{
    char **weights;
    const char *name;
    struct stat st;
    int files, at = 0;

    names[0] = '\0';
    *fixed = false;
    if (sp_weights_list(run, &weights, &files))
        return false;
    while ((name = next_foreign(run, weights, files, &at, &st))) {
        add_name(names, n, name);
        *fixed = *fixed || S_ISDIR(st.st_mode);
    }
    sp_dir_free_names(weights, files);
    return true;
}

void sp_step_remove_foreign_model(const struct sp_dir *run)
{
    char **weights;
    const char *name;
    struct stat st;
    int files, at = 0;

    if (sp_weights_list(run, &weights, &files))
        return;
    while ((name = next_foreign(run, weights, files, &at, &st)))
        unlinkat(run->fd, name, 0);
    sp_dir_free_names(weights, files);
}
