#include "train/checkpoint/step_dirs.h"
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ------------------------------------------------------------------------------ */

/* N of "step-N<suffix>", -1 of other names. */
long sp_step_number(const char *name, const char *suffix)
{
    char *end;
    long n;

    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
        return -1;
    n = strtol(name + 5, &end, 10);
    return strcmp(end, suffix) ? -1 : n;
}

void sp_step_path(const char *dir, long step, const char *suffix, char path[SP_RUN_PATH])
{
    snprintf(path, SP_RUN_PATH, "%s/step-%06ld%s", dir, step, suffix);
}

/* The highest N below `limit` of the step-N<suffix> there, -1: none. */
long sp_step_highest(const char *dir, const char *suffix, long limit)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    long most = -1;

    while (d && (e = readdir(d))) {
        long n = sp_step_number(e->d_name, suffix);

        most = n < limit && n > most ? n : most;
    }
    if (d)
        closedir(d);
    return most;
}

/* ---- finding ---------------------------------------------------------------------------- */

int sp_step_find(const char *dir, char path[SP_RUN_PATH], long *step)
{
    char own[SP_RUN_PATH - 64], *name;
    size_t len = strlen(dir);
    struct stat st;
    long n;

    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (len >= sizeof own)
        return sp_error(ENAMETOOLONG, "cannot resume: a path of %zu bytes is too long", len);
    memcpy(own, dir, len);
    own[len] = '\0';
    name = strrchr(own, '/');
    if (stat(dir, &st))
        return sp_error(errno, "cannot resume from %s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return sp_error(ENOTDIR, "cannot resume from %s: not a directory", dir);
    snprintf(path, SP_RUN_PATH, "%s/state.json", dir);
    if (!lstat(path, &st)) {
        snprintf(path, SP_RUN_PATH, "%s", own);
        *step = sp_step_number(name ? name + 1 : own, "");
        return 0;
    }
    n = sp_step_highest(dir, "", SP_ANY_STEP);
    if (n >= 0) {
        sp_step_path(dir, n, "", path);
    } else {
        /* the first step of the run that was to replace them never came */
        n = sp_step_highest(dir, ".replaced", SP_ANY_STEP);
        sp_step_path(dir, n, ".replaced", path);
    }
    if (n < 0)
        return sp_error(ENOENT,
                        "cannot resume from %s: no step-N directory in it (to start from "
                        "weights alone, give --model DIR)",
                        dir);
    *step = n;
    return 0;
}

/* ---- removing --------------------------------------------------------------------------- */

/* Is it a file of a checkpoint, or what a killed process left of one ("NAME.tmp-...")? */
bool sp_step_file(const char *name)
{
    static const char *const names[] = {"config.json", "state.json", "checksums.json",
                                        "optimizer-m.safetensors", "optimizer-v.safetensors"};
    const char *tmp = strstr(name, ".tmp-");
    char whole[256];

    snprintf(whole, sizeof whole, "%.*s", (int)(tmp ? tmp - name : (long)strlen(name)), name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(whole, names[i]))
            return true;
    return sp_weights_is_file(whole);
}

/* Removes a checkpoint: only the files that one holds. */
void sp_step_remove_files(const char *path)
{
    char file[SP_RUN_PATH + 256];
    DIR *d = opendir(path);
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (sp_step_file(e->d_name)) {
            snprintf(file, sizeof file, "%s/%s", path, e->d_name);
            unlink(file);
        }
    if (d)
        closedir(d);
    rmdir(path);
}

/* Renamed first: a step-N is whole or is not there. */
void sp_step_remove(const char *dir, long step)
{
    char from[SP_RUN_PATH], to[SP_RUN_PATH];

    sp_step_path(dir, step, "", from);
    sp_step_path(dir, step, ".removed", to);
    sp_step_remove_files(to);
    if (!rename(from, to))
        sp_step_remove_files(to);
}

void sp_step_remove_all(const char *dir, const char *suffix)
{
    char path[SP_RUN_PATH];

    for (long n = sp_step_highest(dir, suffix, SP_ANY_STEP); n >= 0;
         n = sp_step_highest(dir, suffix, n)) {
        sp_step_path(dir, n, suffix, path);
        sp_step_remove_files(path);
    }
}
