/* Checkpoints: when, what, and from where a run goes on. The directory is train/run_dir.h's. */
#include "cli/train.h"
#include "model/checksums.h"
#include "sp_error.h"
#include "train/run_state.h"
#include "train/watchdog.h"
#include <string.h>

static const char *const FIELD_FILES[] = {
    [SP_FIELD_W] = "model.safetensors",
    [SP_FIELD_M] = "optimizer-m.safetensors",
    [SP_FIELD_V] = "optimizer-v.safetensors",
};
static const enum sp_field FIELDS[] = {SP_FIELD_W, SP_FIELD_M, SP_FIELD_V};
enum { N_FIELDS = 3 };

/* ---- the directory ---------------------------------------------------------------------- */

/* Parameters and moments, and what the files have besides. */
static uint64_t checkpoint_bytes(const struct sp_trainer *t)
{
    return 12 * sp_model_parameters(&t->model) + (1 << 20);
}

int sp_train_claim(struct sp_trainer *t, const char *resumed)
{
    const struct sp_train_args *a = &t->args;
    struct sp_saver *s = &t->saver;
    int err;

    s->saved = -1;
    s->dir.lock = -1;
    if (t->world.rank || a->dry_run || !a->save)
        return 0;
    err = sp_run_dir_claim(&s->dir, a->save, a->resume ? resumed : NULL, a->keep, a->overwrite);
    if (err)
        return err;
    return sp_run_dir_room(&s->dir, checkpoint_bytes(t));
}

/* ---- saving ----------------------------------------------------------------------------- */

static struct sp_run_config run_config(const struct sp_trainer *t, int steps_done)
{
    const struct sp_train_args *a = &t->args;

    return (struct sp_run_config){.schedule = t->plan.def->name,
                                  .settings = a->settings,
                                  .data = a->tokens ? a->tokens : a->data,
                                  .tokens = &t->data,
                                  .step = steps_done,
                                  .seed = a->seed,
                                  .loss = t->report.loss};
}

/* The small files, and what all of them add up to. */
static int write_rest(const struct sp_trainer *t, int steps_done, const char *tmp)
{
    static const char *const names[] = {"config.json", "state.json"};
    struct sp_run_config now = run_config(t, steps_done);
    json_t *files = json_object();
    char path[SP_RUN_PATH];
    int err;

    snprintf(path, sizeof path, "%s/config.json", tmp);
    err = sp_model_write_config(&t->model, path);
    err = err ? err : sp_run_state_write(tmp, &now);
    for (int i = 0; !err && i < 2 + N_FIELDS; i++) {
        const char *name = i < 2 ? names[i] : FIELD_FILES[FIELDS[i - 2]];
        json_t *sums;

        snprintf(path, sizeof path, "%s/%s", tmp, name);
        sums = sp_file_sum_of(path);
        if (!sums || json_object_set_new(files, name, sums))
            err = -EIO;
    }
    if (err)
        json_decref(files);
    return err ? err : sp_checksums_write(tmp, files);
}

static int save(struct sp_trainer *t, int steps_done)
{
    char tmp[SP_RUN_PATH] = "", path[SP_RUN_PATH + 64];
    struct sp_saver *s = &t->saver;
    bool writes = t->world.rank == 0;
    int err = 0;

    if (s->saved == steps_done)
        return 0;
    if (writes) {
        err = sp_run_dir_room(&s->dir, checkpoint_bytes(t));
        err = err ? err : sp_run_dir_begin(&s->dir, steps_done, tmp);
    }
    for (int i = 0; !err && i < N_FIELDS; i++) {
        snprintf(path, sizeof path, "%s/%s", tmp, FIELD_FILES[FIELDS[i]]);
        err = sp_checkpoint_write_sharded(&t->graph, FIELDS[i], path,
                                          FIELDS[i] == SP_FIELD_W ? t->args.shard_size : 0);
    }
    if (writes && !err) {
        err = write_rest(t, steps_done, tmp);
        err = err ? err : sp_run_dir_commit(&s->dir, steps_done);
    }
    if (writes && err)
        sp_run_dir_abandon(&s->dir, steps_done);
    if (err)
        return err; /* the run ends: the other ranks are told by the abort */
    s->saved = steps_done;
    s->proven = false;
    return 0;
}

int sp_train_save(struct sp_trainer *t, int steps_done)
{
    int err;

    sp_watchdog_pause(t->watchdog);
    err = save(t, steps_done);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_resume(t->watchdog);
    return err;
}

int sp_train_dump_grads(struct sp_trainer *t)
{
    int err;

    sp_watchdog_pause(t->watchdog);
    err = sp_checkpoint_write(&t->graph, SP_FIELD_G, t->args.dump_grads);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_resume(t->watchdog);
    return err;
}

void sp_train_proven(struct sp_trainer *t)
{
    struct sp_saver *s = &t->saver;

    if (s->saved < 0 || s->proven)
        return;
    s->proven = true;
    if (t->world.rank == 0)
        sp_run_dir_prune(&s->dir);
}

void sp_train_step_back(struct sp_trainer *t)
{
    struct sp_saver *s = &t->saver;
    long older;

    if (t->world.rank || s->saved < 0 || s->proven)
        return;
    older = sp_run_dir_step_back(&s->dir, s->saved);
    if (older >= 0)
        sp_warn("%s: step %ld was saved after the update that diverged: put aside as "
                "step-%06ld.diverged, the newest is step %ld",
                t->args.save, s->saved, s->saved, older);
}

/* ---- going on --------------------------------------------------------------------------- */

int sp_train_find_resume(struct sp_trainer *t, char dir[SP_RUN_PATH])
{
    struct sp_run_state state;
    long step;
    int err = sp_step_find(t->args.resume, dir, &step);

    err = err ? err : sp_run_state_read(dir, &state);
    if (err)
        return err;
    t->first_step = state.step;
    if (!t->args.seed_given)
        t->args.seed = state.seed;
    sp_run_state_free(&state);
    return 0;
}

/* Opens and checks one file of the optimizer; reads it into the stages if `load`. */
static int moment(struct sp_trainer *t, const char *dir, enum sp_field field, bool load)
{
    struct sp_st_file st;
    char path[SP_RUN_PATH + 64];
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
    static const char *const names[] = {"config.json", "state.json", "optimizer-m.safetensors",
                                        "optimizer-v.safetensors", NULL};
    struct sp_run_state state;
    int err = sp_run_state_read(dir, &state);

    if (err)
        return err;
    err = sp_checksums_verify(dir, names, t->world.rank, t->world.size);
    if (err == -ENOENT && state.format > 1)
        err = sp_error(EINVAL, "cannot resume: %s/" SP_CHECKSUMS_FILE " is missing", dir);
    else if (err == -ENOENT && t->world.rank == 0)
        sp_warn("%s was saved without checksums, by an older version", dir);
    err = err == -ENOENT ? 0 : err;
    sp_run_state_free(&state);
    err = err ? err : moment(t, dir, SP_FIELD_M, false);
    return err ? err : moment(t, dir, SP_FIELD_V, false);
}

int sp_train_load_resume(struct sp_trainer *t, const char *dir)
{
    int err = moment(t, dir, SP_FIELD_M, true);

    return err ? err : moment(t, dir, SP_FIELD_V, true);
}

void sp_train_warn_of_changes(const struct sp_trainer *t, const char *dir)
{
    struct sp_run_config now = run_config(t, t->first_step);
    struct sp_run_state state;
    char changes[2600];

    if (!t->args.resume || sp_run_state_read(dir, &state))
        return;
    if (sp_run_state_changes(&state, &now, changes, sizeof changes))
        sp_warn("%s was saved by a run that was told otherwise: now %s", dir, changes);
    sp_run_state_free(&state);
}
