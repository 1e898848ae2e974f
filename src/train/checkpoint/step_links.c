#include "train/checkpoint/step_links.h"
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Points DIR/name at DIR/step/name: a new link under another name, renamed over the old one. */
static int point(const char *dir, const char *step, const char *name)
{
    char target[SP_RUN_PATH], from[SP_RUN_PATH], to[SP_RUN_PATH];

    snprintf(target, sizeof target, "%s/%s", step, name);
    snprintf(from, sizeof from, "%s/.%s.new", dir, name);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    unlink(from);
    if (symlink(target, from) || rename(from, to))
        return sp_error(errno, "cannot replace %s: %s", to, strerror(errno));
    return 0;
}

/* Removes DIR/name if it is a link; a file is not ours. */
static void remove_link(const char *dir, const char *name)
{
    char path[SP_RUN_PATH];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!lstat(path, &st) && S_ISLNK(st.st_mode))
        unlink(path);
}

/* Those to files that the step does not have. */
static void remove_stale(const char *dir, char *const *kept, int n_kept)
{
    char **names;
    int n;

    if (sp_weights_list(dir, &names, &n))
        return;
    for (int i = 0; i < n; i++) {
        bool keep = false;

        for (int k = 0; k < n_kept; k++)
            keep = keep || !strcmp(names[i], kept[k]);
        if (!keep)
            remove_link(dir, names[i]);
    }
    sp_weights_free_list(names, n);
}

int sp_step_link(const char *dir, const char *step)
{
    char path[SP_RUN_PATH], **names;
    int n, err;

    snprintf(path, sizeof path, "%s/%s", dir, step);
    err = sp_weights_list(path, &names, &n);
    if (err)
        return err;
    /*
     * Shards of two steps must never be read as one model: their index goes first and comes last.
     * What a reader finds in between, shards without an index or two forms, it refuses.
     */
    remove_link(dir, SP_WEIGHTS_INDEX);
    err = point(dir, step, "config.json");
    for (int i = 0; i < n && !err; i++)
        err = point(dir, step, names[i]);
    if (!err)
        remove_stale(dir, names, n);
    sp_weights_free_list(names, n);
    return err;
}

void sp_step_unlink(const char *dir)
{
    remove_link(dir, SP_WEIGHTS_INDEX);
    remove_link(dir, "config.json");
    remove_stale(dir, NULL, 0);
}
