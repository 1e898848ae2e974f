/* Checkpoints: when, what, and from where a run goes on. The directory is train/checkpoint/run_dir.h's. */
#include "train/trainer.h"
#include "model/checksums.h"
#include "sp_error.h"
#include "train/checkpoint/run_state.h"
#include "train/run/watchdog.h"
#include <pthread.h>
#include <stdlib.h>
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

int sp_train_lock(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;

    t->saver.saved = t->saver.begun = -1;
    return t->world.rank || a->dry_run || !a->save ? 0 : sp_run_dir_lock(&t->saver.dir, a->save);
}

int sp_train_claim(struct sp_trainer *t, const char *resumed)
{
    const struct sp_train_args *a = &t->args;
    struct sp_saver *s = &t->saver;
    int err;

    if (t->world.rank || a->dry_run || !a->save)
        return 0;
    err = sp_run_dir_claim(&s->dir, a->resume ? resumed : NULL, a->keep, a->overwrite);
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

/* A checkpoint on its way to the disk, on rank 0. */
struct sp_writing {
    struct sp_run_dir *dir;
    const struct sp_model *model;
    struct sp_run_config now;
    char path[SP_RUN_PATH]; /* of step-N.tmp */
    uint64_t shard_bytes;
    json_t *sums;
    struct sp_snapshot *copies[N_FIELDS]; /* --save-async */
    pthread_t thread;
    bool done; /* set by the thread */
    int err;
};

static int begin_writing(struct sp_trainer *t, int steps_done, struct sp_writing *w)
{
    int err = sp_run_dir_room(&t->saver.dir, checkpoint_bytes(t));

    *w = (struct sp_writing){.dir = &t->saver.dir,
                             .model = &t->model,
                             .now = run_config(t, steps_done),
                             .shard_bytes = t->args.shard_size,
                             .sums = json_object()};
    return err ? err : sp_run_dir_begin(&t->saver.dir, steps_done, w->path);
}

static void field_path(const struct sp_writing *w, enum sp_field field, char path[SP_RUN_PATH + 64])
{
    snprintf(path, SP_RUN_PATH + 64, "%s/%s", w->path, FIELD_FILES[field]);
}

/* The small files, and what all of them add up to; then it is a step. */
static int complete(struct sp_writing *w)
{
    static const char *const names[] = {"config.json", "state.json"};
    char path[SP_RUN_PATH + 64];
    int err;

    snprintf(path, sizeof path, "%s/config.json", w->path);
    err = sp_model_write_config(w->model, path);
    err = err ? err : sp_run_state_write(w->path, &w->now);
    for (int i = 0; !err && i < 2; i++) {
        json_t *sums;

        snprintf(path, sizeof path, "%s/%s", w->path, names[i]);
        sums = sp_file_sum_of(path);
        if (!sums || json_object_set_new(w->sums, names[i], sums))
            err = -EIO;
    }
    err = err ? err : sp_checksums_write(w->path, json_incref(w->sums));
    return err ? err : sp_run_dir_commit(w->dir, w->now.step);
}

static int end_writing(struct sp_writing *w, int err)
{
    if (err)
        sp_run_dir_abandon(w->dir, w->now.step);
    json_decref(w->sums);
    for (int i = 0; i < N_FIELDS; i++)
        sp_snapshot_free(w->copies[i]);
    return err;
}

static void saved(struct sp_saver *s, int step)
{
    s->saved = step;
    s->proven = false;
}

/* While nothing is written: what is not proven does not count. */
static void prune_proven(struct sp_saver *s)
{
    if (s->now || s->saved < 0 || s->proven || s->finite <= s->saved)
        return;
    s->proven = true;
    sp_run_dir_prune(&s->dir);
}

/* Straight from the stages. */
static int save_now(struct sp_trainer *t, int steps_done)
{
    struct sp_writing w = {0};
    char path[SP_RUN_PATH + 64];
    bool writes = t->world.rank == 0;
    int err = writes ? begin_writing(t, steps_done, &w) : 0;

    for (int i = 0; !err && i < N_FIELDS; i++) {
        field_path(&w, FIELDS[i], path);
        err = sp_checkpoint_write_sharded(&t->graph, FIELDS[i], path,
                                          FIELDS[i] == SP_FIELD_W ? w.shard_bytes : 0, w.sums);
    }
    if (!writes)
        return err;
    err = end_writing(&w, err ? err : complete(&w));
    if (!err)
        saved(&t->saver, steps_done);
    return err;
}

/* ---- --save-async ----------------------------------------------------------------------- */

static void *write_copies(void *arg)
{
    struct sp_writing *w = arg;
    char path[SP_RUN_PATH + 64];
    int err = 0;

    for (int i = 0; !err && i < N_FIELDS; i++) {
        field_path(w, FIELDS[i], path);
        err = sp_snapshot_write(w->copies[i], path, FIELDS[i] == SP_FIELD_W ? w->shard_bytes : 0,
                                w->sums);
    }
    w->err = err ? err : complete(w);
    __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Waits for the thread, if there is one. */
static int join(struct sp_saver *s)
{
    struct sp_writing *w = s->now;
    int err;

    if (!w)
        return 0;
    s->now = NULL;
    pthread_join(w->thread, NULL);
    err = end_writing(w, w->err);
    if (!err)
        saved(s, w->now.step);
    free(w);
    return err;
}

static int save_copies(struct sp_trainer *t, int steps_done)
{
    struct sp_snapshot *other[N_FIELDS] = {NULL};
    bool writes = t->world.rank == 0;
    struct sp_writing *w = writes ? malloc(sizeof *w) : NULL;
    int err = join(&t->saver);

    if (writes && !w)
        return sp_error(ENOMEM, "no memory to save step %d", steps_done);
    if (writes && !err) {
        prune_proven(&t->saver);
        err = begin_writing(t, steps_done, w);
    }
    for (int i = 0; !err && i < N_FIELDS; i++)
        err = sp_snapshot_take(&t->graph, FIELDS[i], writes ? &w->copies[i] : &other[i]);
    if (!writes)
        return err;
    if (!err)
        err = -pthread_create(&w->thread, NULL, write_copies, w);
    if (err) {
        end_writing(w, err);
        free(w);
        return err;
    }
    t->saver.now = w;
    return 0;
}

/* ---- what the loop calls ---------------------------------------------------------------- */

int sp_train_save(struct sp_trainer *t, int steps_done)
{
    int err;

    if (t->saver.begun == steps_done)
        return 0;
    t->saver.begun = steps_done;
    sp_watchdog_pause(t->watchdog);
    err = t->args.save_async ? save_copies(t, steps_done) : save_now(t, steps_done);
    /* on an error the run ends: the other ranks are told by the abort */
    if (!err)
        sp_transport_barrier();
    sp_watchdog_resume(t->watchdog);
    return err;
}

int sp_train_proven(struct sp_trainer *t, int step)
{
    struct sp_saver *s = &t->saver;
    int err = 0;

    s->finite = step + 1;
    if (s->now && __atomic_load_n(&s->now->done, __ATOMIC_ACQUIRE))
        err = join(s);
    if (!err)
        prune_proven(s);
    return err;
}

int sp_train_saved_all(struct sp_trainer *t)
{
    int err;

    sp_watchdog_pause(t->watchdog);
    err = join(&t->saver);
    if (!err && t->world.rank == 0 && t->saver.saved >= 0)
        sp_run_dir_prune(&t->saver.dir);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_resume(t->watchdog);
    return err;
}

void sp_train_step_back(struct sp_trainer *t)
{
    struct sp_saver *s = &t->saver;
    long older;

    if (t->world.rank || join(s) || s->saved < 0 || s->finite > s->saved)
        return;
    older = sp_run_dir_step_back(&s->dir, s->saved);
    if (older >= 0)
        sp_warn("%s: step %ld was saved after the update that diverged: put aside as "
                "step-%06ld.diverged, the newest is step %ld",
                t->args.save, s->saved, s->saved, older);
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
