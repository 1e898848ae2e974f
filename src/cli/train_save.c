#include "cli/train.h"
#include "sp_error.h"
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const FIELD_FILES[] = {
    [SP_FIELD_W] = "model.safetensors",
    [SP_FIELD_M] = "optimizer-m.safetensors",
    [SP_FIELD_V] = "optimizer-v.safetensors",
};
static const enum sp_field FIELDS[] = {SP_FIELD_W, SP_FIELD_M, SP_FIELD_V};
enum { N_FIELDS = 3, PATH = 4400 };

static int make_dir(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return sp_error(errno, "cannot make directory %s: %s", path, strerror(errno));
    return 0;
}

/* Can a file be made at `path`, or in it if it is a directory? Nothing that exists is touched. */
static int try_file(const char *path, bool is_dir)
{
    char name[PATH + 32];
    bool existed;
    FILE *f;
    int err = is_dir ? make_dir(path) : 0;

    if (err)
        return err;
    snprintf(name, sizeof name, is_dir ? "%s/.starpipe-probe" : "%s", path);
    existed = !access(name, F_OK);
    f = fopen(name, "ab");
    if (!f)
        return sp_error(errno, "cannot write %s: %s", path, strerror(errno));
    fclose(f);
    if (!existed)
        unlink(name);
    return 0;
}

int sp_train_check_output(const struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int err = 0;

    if (t->world.rank || a->dry_run)
        return 0;
    if (a->log)
        err = try_file(a->log, false);
    if (!err && a->dump_grads)
        err = try_file(a->dump_grads, false);
    if (!err && a->save)
        err = try_file(a->save, true);
    if (!err && a->trace)
        err = try_file(a->trace, true);
    return err;
}

static int write_state(const struct sp_trainer *t, const char *dir, int steps_done)
{
    char path[PATH + 64];
    json_t *state = json_pack("{s:i,s:I,s:s}", "step", steps_done, "seed", (json_int_t)t->args.seed,
                              "schedule", t->plan.def->name);
    int bad;

    snprintf(path, sizeof path, "%s/state.json", dir);
    bad = !state || json_dump_file(state, path, JSON_INDENT(1));
    json_decref(state);
    return bad ? sp_error(EIO, "cannot write %s", path) : 0;
}

/* Points DIR/name at DIR/step/name: a new link under another name, renamed over the old one. */
static int point(const char *dir, const char *step, const char *name)
{
    char target[PATH], from[PATH], to[PATH];

    snprintf(target, sizeof target, "%s/%s", step, name);
    snprintf(from, sizeof from, "%s/.%s.new", dir, name);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    unlink(from);
    if (symlink(target, from) || rename(from, to))
        return sp_error(errno, "cannot replace %s: %s", to, strerror(errno));
    return 0;
}

/* Is it a file of a checkpoint, or what a killed process left of one ("NAME.tmp-...")? */
static bool is_ours(const char *name)
{
    static const char *const names[] = {"config.json", "state.json", "model.safetensors",
                                        "optimizer-m.safetensors", "optimizer-v.safetensors"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);

        if (!strncmp(name, names[i], len) && (!name[len] || !strncmp(name + len, ".tmp-", 5)))
            return true;
    }
    return false;
}

/* Removes a checkpoint: only the files that one holds. */
static void remove_step(const char *dir, const char *step)
{
    char path[PATH], file[PATH + 256];
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof path, "%s/%s", dir, step);
    d = opendir(path);
    while (d && (e = readdir(d)))
        if (is_ours(e->d_name)) {
            snprintf(file, sizeof file, "%s/%s", path, e->d_name);
            unlink(file);
        }
    if (d)
        closedir(d);
    rmdir(path);
}

/* N of "step-N" or "step-N<suffix>", -1 otherwise. */
static long step_number(const char *name, const char *suffix)
{
    char *end;
    long n;

    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
        return -1;
    n = strtol(name + 5, &end, 10);
    return strcmp(end, suffix) ? -1 : n;
}

static void remove_older(const char *dir, long newest)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d)))
        if ((step_number(e->d_name, "") >= 0 && step_number(e->d_name, "") < newest) ||
            step_number(e->d_name, ".tmp") >= 0 || step_number(e->d_name, ".old") >= 0)
            remove_step(dir, e->d_name);
    if (d)
        closedir(d);
}

/* DIR/step.tmp becomes DIR/step; one that is there already stays whole, as step.old, until then. */
static int put_in_place(const char *dir, const char *step)
{
    char tmp[PATH], final[PATH], old_name[80], old[PATH];

    snprintf(tmp, sizeof tmp, "%s/%s.tmp", dir, step);
    snprintf(final, sizeof final, "%s/%s", dir, step);
    snprintf(old_name, sizeof old_name, "%s.old", step);
    snprintf(old, sizeof old, "%s/%s", dir, old_name);
    if (!access(final, F_OK)) {
        remove_step(dir, old_name);
        if (rename(final, old))
            return sp_error(errno, "cannot rename %s to %s: %s", final, old, strerror(errno));
    }
    if (rename(tmp, final))
        return sp_error(errno, "cannot rename %s to %s: %s", tmp, final, strerror(errno));
    return 0;
}

int sp_train_save(struct sp_trainer *t, int steps_done)
{
    char name[64], temp[80], tmp[PATH], path[PATH + 64];
    bool writes = t->world.rank == 0;
    int err = 0;

    snprintf(name, sizeof name, "step-%06d", steps_done);
    snprintf(temp, sizeof temp, "%s.tmp", name);
    snprintf(tmp, sizeof tmp, "%s/%s", t->args.save, temp);
    if (writes) {
        remove_step(t->args.save, temp);
        err = make_dir(tmp);
    }
    for (int i = 0; i < N_FIELDS; i++) {
        snprintf(path, sizeof path, "%s/%s", tmp, FIELD_FILES[FIELDS[i]]);
        err = err ? err : sp_checkpoint_write(&t->graph, FIELDS[i], path);
        if (err)
            return err; /* the run ends: the other ranks are told by the abort */
    }
    if (!writes)
        return 0;
    snprintf(path, sizeof path, "%s/config.json", tmp);
    err = sp_model_write_config(&t->model, path);
    err = err ? err : write_state(t, tmp, steps_done);
    err = err ? err : put_in_place(t->args.save, name);
    err = err ? err : point(t->args.save, name, "config.json");
    err = err ? err : point(t->args.save, name, "model.safetensors");
    if (!err)
        remove_older(t->args.save, steps_done);
    return err;
}

/*
 * The step that a run in `dir` saved last: the one its link names. Without it (the very first save
 * was killed just before the link was made, or a step being replaced) the highest number.
 */
static int find_step(const char *dir, char *found, size_t n)
{
    char path[PATH], target[256];
    ssize_t len;
    struct dirent *e;
    long newest = -1;
    DIR *d = opendir(dir);

    if (!d)
        return sp_error(errno, "cannot resume from %s: %s", dir, strerror(errno));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    len = readlink(path, target, sizeof target - 1);
    if (len > 0 && !access(path, F_OK)) {
        target[len] = '\0';
        target[strcspn(target, "/")] = '\0';
        newest = step_number(target, "");
        snprintf(found, n, "%s/%s", dir, target);
    }
    while (newest < 0 && (e = readdir(d))) {
        long step = step_number(e->d_name, "");

        step = step < 0 ? step_number(e->d_name, ".old") : step;
        if (step > newest) {
            newest = step;
            snprintf(found, n, "%s/%s", dir, e->d_name);
        }
    }
    closedir(d);
    if (newest < 0)
        return sp_error(ENOENT,
                        "cannot resume from %s: no step-N directory in it (to start from "
                        "weights alone, give --model DIR)",
                        dir);
    return 0;
}

int sp_train_find_resume(struct sp_trainer *t, char *dir, size_t n)
{
    char path[PATH + 64];
    json_t *state;
    json_int_t seed = 0;
    int step = -1, err = find_step(t->args.resume, dir, n);

    if (err)
        return err;
    snprintf(path, sizeof path, "%s/state.json", dir);
    state = json_load_file(path, 0, NULL);
    if (!state || json_unpack(state, "{s:i,s:I}", "step", &step, "seed", &seed) || step < 0) {
        json_decref(state);
        return sp_error(EINVAL, "cannot resume: %s is missing or malformed", path);
    }
    json_decref(state);
    t->first_step = step;
    t->args.seed = (uint64_t)seed;
    return 0;
}

/* Opens and checks one file of the optimizer; reads it into the stages if `load`. */
static int moment(struct sp_trainer *t, const char *dir, enum sp_field field, bool load)
{
    struct sp_st_file st;
    char path[PATH + 64];
    int err;

    snprintf(path, sizeof path, "%s/%s", dir, FIELD_FILES[field]);
    err = sp_st_open(path, &st);
    if (err)
        return err;
    err = sp_weights_check(&st, &t->params);
    if (!err && load)
        err = sp_checkpoint_read(&t->graph, field, &st);
    sp_st_close(&st);
    return err;
}

int sp_train_check_resume(struct sp_trainer *t, const char *dir)
{
    int err = moment(t, dir, SP_FIELD_M, false);

    return err ? err : moment(t, dir, SP_FIELD_V, false);
}

int sp_train_load_resume(struct sp_trainer *t, const char *dir)
{
    int err = moment(t, dir, SP_FIELD_M, true);

    return err ? err : moment(t, dir, SP_FIELD_V, true);
}
