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

    if (is_dir && make_dir(path))
        return -errno;
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

/* Removes a checkpoint of ours: only the files that one holds. */
static void remove_step(const char *dir, const char *step)
{
    static const char *const names[] = {"config.json", "state.json", "model.safetensors",
                                        "optimizer-m.safetensors", "optimizer-v.safetensors"};
    char path[PATH];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", dir, step, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/%s", dir, step);
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
            step_number(e->d_name, ".tmp") >= 0)
            remove_step(dir, e->d_name);
    if (d)
        closedir(d);
}

int sp_train_save(struct sp_trainer *t, int steps_done)
{
    char name[64], temp[80], tmp[PATH], final[PATH], path[PATH + 64];
    bool writes = t->world.rank == 0;
    int err = 0;

    snprintf(name, sizeof name, "step-%06d", steps_done);
    snprintf(temp, sizeof temp, "%s.tmp", name);
    snprintf(tmp, sizeof tmp, "%s/%s", t->args.save, temp);
    snprintf(final, sizeof final, "%s/%s", t->args.save, name);
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
    if (err)
        return err;
    remove_step(t->args.save, name);
    if (rename(tmp, final))
        return sp_error(errno, "cannot rename %s to %s: %s", tmp, final, strerror(errno));
    err = point(t->args.save, name, "config.json");
    err = err ? err : point(t->args.save, name, "model.safetensors");
    if (!err)
        remove_older(t->args.save, steps_done);
    return err;
}

int sp_train_find_resume(struct sp_trainer *t, char *dir, size_t n)
{
    DIR *d = opendir(t->args.resume);
    struct dirent *e;
    long newest = -1;
    char path[PATH + 64];
    json_t *state;
    int step = -1;
    json_int_t seed = 0;

    if (!d)
        return sp_error(errno, "cannot resume from %s: %s", t->args.resume, strerror(errno));
    while ((e = readdir(d)))
        if (step_number(e->d_name, "") > newest) {
            newest = step_number(e->d_name, "");
            snprintf(dir, n, "%s/%s", t->args.resume, e->d_name);
        }
    closedir(d);
    if (newest < 0)
        return sp_error(ENOENT,
                        "cannot resume from %s: no step-N directory in it (to start from "
                        "weights alone, give --model DIR)",
                        t->args.resume);
    snprintf(path, sizeof path, "%s/state.json", dir);
    state = json_load_file(path, 0, NULL);
    if (!state || json_unpack(state, "{s:i,s:I}", "step", &step, "seed", &seed) || step < 0) {
        json_decref(state);
        return sp_error(EINVAL, "cannot resume: %s is missing or malformed", path);
    }
    json_decref(state);
    t->first_step = step;
    t->args.seed = (uint64_t)seed;
    if (step >= t->args.steps && t->world.rank == 0)
        sp_warn("%s has run %d steps already, --steps is %d", dir, step, t->args.steps);
    return 0;
}

int sp_train_load_resume(struct sp_trainer *t, const char *dir)
{
    for (int i = 1; i < N_FIELDS; i++) {
        struct sp_st_file st;
        char path[PATH + 64];
        int err;

        snprintf(path, sizeof path, "%s/%s", dir, FIELD_FILES[FIELDS[i]]);
        err = sp_st_open(path, &st);
        if (err)
            return err;
        err = sp_weights_check(&st, &t->params);
        err = err ? err : sp_checkpoint_read(&t->graph, FIELDS[i], &st);
        sp_st_close(&st);
        if (err)
            return err;
    }
    return 0;
}
