#include "train/checkpoint/step_dirs.h"
#include "model/files/companions.h"
#include "model/files/input.h"
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE "state.json"

/* ---- names ------------------------------------------------------------------------------ */

void sp_step_name(long step, const char *suffix, char name[SP_STEP_NAME])
{
    snprintf(name, SP_STEP_NAME, "step-%06ld%s", step, suffix);
}

long sp_step_number(const char *name, const char *suffix)
{
    char again[SP_STEP_NAME];
    long n;

    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
        return -1;
    n = strtol(name + 5, NULL, 10);
    sp_step_name(n, suffix, again);
    return strcmp(name, again) ? -1 : n;
}

long sp_step_highest(const struct sp_dir *run, const char *suffix, long limit)
{
    DIR *d = sp_dir_list(run);
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

long sp_step_before(const struct sp_dir *run, const char *suffix, long limit,
                    char name[SP_STEP_NAME])
{
    long n = sp_step_highest(run, suffix, limit);

    if (n >= 0)
        sp_step_name(n, suffix, name);
    return n;
}

/* ---- files ------------------------------------------------------------------------------ */

json_t *sp_step_state(const struct sp_dir *dir)
{
    enum { MOST = 64 << 20 };
    json_t *state = NULL;
    struct stat st;
    size_t n = 0;
    char *text;
    bool quiet;

    if (!sp_dir_has(dir, STATE, &st) || !S_ISREG(st.st_mode))
        return NULL;
    quiet = sp_error_quiet(true);
    if (!sp_input_read_in(dir, STATE, MOST, "a state", &text, &n)) {
        state = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
        free(text);
    }
    sp_error_quiet(quiet);
    return state;
}

json_t *sp_step_companions(const struct sp_dir *step)
{
    json_t *state = sp_step_state(step);
    json_t *names = sp_companions_check_names(json_object_get(state, SP_STEP_COMPANIONS));

    json_decref(state);
    return names;
}

bool sp_step_has_companion(const json_t *companions, const char *name)
{
    json_t *other;
    size_t i;

    json_array_foreach(companions, i, other)
    {
        if (!strcmp(json_string_value(other), name))
            return true;
    }
    return false;
}

/* True if it names a file of a step with these companions, or the remains of one that a killed
 * process left ("NAME.tmp-..."). */
static bool is_file(const char *name, const void *companions)
{
    static const char *const names[] = {"config.json", STATE, "checksums.json",
                                        "optimizer-m.safetensors", "optimizer-v.safetensors"};
    const char *tmp = strstr(name, ".tmp-");
    char whole[256];

    snprintf(whole, sizeof whole, "%.*s", (int)(tmp ? tmp - name : (long)strlen(name)), name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(whole, names[i]))
            return true;
    return sp_weights_is_file(whole) || sp_step_has_companion(companions, whole);
}

/* Opens all files of the step, and keeps them open. */
static int hold(struct sp_dir *step)
{
    json_t *companions = sp_step_companions(step);
    int err = sp_dir_hold(step, is_file, companions);

    json_decref(companions);
    return err;
}

/* ---- finding ---------------------------------------------------------------------------- */

static int refuse_to_resume(const char *from, int err)
{
    return sp_error(err, "cannot resume from %s: %s", from,
                    err == ENOTDIR ? "not a directory" : strerror(err));
}

/* Opens a step of `run` with its files. 0; -EAGAIN: another run is removing it; -errno after one
 * line. */
static int open_step(const struct sp_dir *run, const char *name, struct sp_dir *step)
{
    struct stat st;
    int err = sp_dir_open_in(run, name, true, step);

    if (err == -ENOENT && !sp_dir_has(run, name, &st))
        return -EAGAIN;
    if (err) {
        char *path = sp_dir_join(run, name);

        err = refuse_to_resume(path ? path : name, -err);
        free(path);
        return err;
    }
    err = hold(step);
    /* a step that is removed loses its name before its files */
    if (!err && (fstatat(run->fd, name, &st, 0) || !sp_dir_is(step, &st)))
        err = -EAGAIN;
    if (err)
        sp_dir_close(step);
    return err;
}

static int open_newest(const struct sp_dir *run, struct sp_dir *step)
{
    enum { TRIES = 100 };
    char name[SP_STEP_NAME];
    int err = -EAGAIN;

    for (int i = 0; i < TRIES && err == -EAGAIN; i++) {
        /* if there is no other, the run that was to replace these steps never saved its first one */
        if (sp_step_before(run, "", SP_ANY_STEP, name) < 0 &&
            sp_step_before(run, ".replaced", SP_ANY_STEP, name) < 0)
            return sp_error(ENOENT,
                            "cannot resume from %s: no step-N directory in it (to start from "
                            "weights alone, give --model DIR)",
                            run->path);
        err = open_step(run, name, step);
    }
    if (err == -EAGAIN)
        err = sp_error(EAGAIN, "cannot resume from %s: another run removes its steps too fast",
                       run->path);
    return err;
}

int sp_step_open(const char *dir, struct sp_dir *step)
{
    size_t len = strlen(dir);
    char *own;
    struct sp_dir run = SP_DIR_CLOSED;
    struct stat st;
    int err;

    while (len > 1 && dir[len - 1] == '/')
        len--;
    own = strndup(dir, len);
    err = own ? sp_dir_open(own, &run) : -ENOMEM;
    free(own);
    if (err)
        return refuse_to_resume(dir, -err);
    if (!sp_dir_has(&run, STATE, &st)) {
        err = open_newest(&run, step);
        sp_dir_close(&run);
        return err;
    }
    err = hold(&run);
    if (err)
        sp_dir_close(&run);
    else
        *step = run;
    return err;
}

/* ---- whose is it? ----------------------------------------------------------------------- */

static bool says_a_step(const struct sp_dir *dir)
{
    json_t *state = sp_step_state(dir), *step = json_object_get(state, "step");
    bool says = json_is_integer(step) && json_integer_value(step) >= 0;

    json_decref(state);
    return says;
}

/* True if it is empty, or has only the remains of its first file that a killed process left. */
static bool has_just_begun(const struct sp_dir *dir)
{
    DIR *d = sp_dir_list(dir);
    struct dirent *e;
    bool only = d != NULL;

    while (only && (e = readdir(d)))
        only = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
               !strncmp(e->d_name, STATE ".tmp-", strlen(STATE ".tmp-"));
    if (d)
        closedir(d);
    return only;
}

/* Opens a directory that a run made. 0; -ENOENT: nothing is there; or -EEXIST: something else
 * is. */
static int open_ours(const struct sp_dir *run, const char *name, struct sp_dir *dir)
{
    struct stat st;

    if (sp_dir_open_in(run, name, false, dir))
        return sp_dir_has(run, name, &st) || errno != ENOENT ? -EEXIST : -ENOENT;
    if (says_a_step(dir) || has_just_begun(dir))
        return 0;
    sp_dir_close(dir);
    return -EEXIST;
}

enum sp_step_kind sp_step_look(const struct sp_dir *run, const char *name)
{
    struct sp_dir dir;
    int err = open_ours(run, name, &dir);

    if (err)
        return err == -ENOENT ? SP_STEP_NONE : SP_STEP_FOREIGN;
    sp_dir_close(&dir);
    return SP_STEP_OURS;
}

/* ---- removing --------------------------------------------------------------------------- */

void sp_step_remove_files(const struct sp_dir *run, const char *name)
{
    json_t *companions;
    struct sp_dir dir;
    struct dirent *e;
    DIR *d;

    if (open_ours(run, name, &dir))
        return;
    companions = sp_step_companions(&dir);
    d = sp_dir_list(&dir);
    while (d && (e = readdir(d)))
        if (is_file(e->d_name, companions) && strcmp(e->d_name, STATE))
            unlinkat(dir.fd, e->d_name, 0);
    if (d)
        closedir(d);
    json_decref(companions);
    sp_dir_sync(&dir); /* while other files may be there, STATE tells whose they are */
    unlinkat(dir.fd, STATE, 0);
    sp_dir_close(&dir);
    unlinkat(run->fd, name, AT_REMOVEDIR);
}

void sp_step_remove_all(const struct sp_dir *run, const char *suffix)
{
    char name[SP_STEP_NAME];

    for (long n = SP_ANY_STEP; (n = sp_step_before(run, suffix, n, name)) >= 0;)
        sp_step_remove_files(run, name);
}

long long sp_step_bytes(const struct sp_dir *run, long step)
{
    char name[SP_STEP_NAME];
    long long bytes = 0;
    json_t *companions;
    struct sp_dir dir;
    struct dirent *e;
    struct stat st;
    DIR *list;

    sp_step_name(step, "", name);
    if (sp_dir_open_in(run, name, false, &dir))
        return 0;
    companions = sp_step_companions(&dir);
    list = sp_dir_list(&dir);
    while (list && (e = readdir(list)))
        if (is_file(e->d_name, companions) && sp_dir_has(&dir, e->d_name, &st))
            bytes += st.st_size;
    if (list)
        closedir(list);
    json_decref(companions);
    sp_dir_close(&dir);
    return bytes;
}
