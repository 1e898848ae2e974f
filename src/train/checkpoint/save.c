/* Makes checkpoints: decides when, and writes them. train/checkpoint/run_dir.h has the
 * directory. */
#include "train/checkpoint/save.h"
#include "graphs/weights/checkpoint.h"
#include "model/files/checksums.h"
#include "model/files/companions.h"
#include "sp_error.h"
#include "train/checkpoint/resume.h"
#include "train/run/watchdog.h"
#include "transport/transport.h"
#include <pthread.h>
#include <stdlib.h>

static const enum sp_field FIELDS[] = {SP_FIELD_W, SP_FIELD_M, SP_FIELD_V};
enum { N_FIELDS = 3 };

/* ---- the directory ---------------------------------------------------------------------- */

/* Bytes of parameters and moments, of the rest of their files, and of the model's companions. */
static uint64_t checkpoint_bytes(const struct sp_trainer *t)
{
    return 12 * sp_model_parameters(&t->model) + (1 << 20) + sp_companions_bytes(&t->companions);
}

int sp_train_lock(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    return t->world.rank || a->dry_run || !a->save ? 0 : sp_run_dir_lock(&t->saver.dir, a->save);
}

int sp_train_claim(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_saver *s = &t->saver;
    int err;

    if (t->world.rank || a->dry_run || !a->save)
        return 0;
    err = sp_run_dir_claim(&s->dir, a->resume ? &t->resumed_dir : NULL, a->keep, a->overwrite);
    if (err)
        return err;
    s->saved = s->dir.resumed; /* the first loss proves it */
    return sp_run_dir_room(&s->dir, checkpoint_bytes(t));
}

/* ---- saving ----------------------------------------------------------------------------- */

/* A checkpoint that is being written, on rank 0. */
struct sp_writing {
    struct sp_run_dir *dir;
    const struct sp_model *model;
    const struct sp_dir *companions;
    struct sp_run_config now;
    struct sp_dir tmp; /* step-N.tmp */
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
                             .companions = &t->companions,
                             .now = sp_train_state(t, steps_done),
                             .tmp = SP_DIR_CLOSED,
                             .shard_bytes = t->cfg.shard_size,
                             .sums = json_object()};
    err = err ? err : sp_run_dir_begin(&t->saver.dir, steps_done, &w->tmp);
    /* this file comes first: it tells whose directory this is */
    return err ? err : sp_run_state_write(&w->tmp, &w->now);
}

/* Writes the small files and the checksums of all; then it is a step. */
static int complete(struct sp_writing *w)
{
    static const char *const names[] = {"config.json", "state.json"};
    int err = sp_model_write_config_as_read(w->model, w->companions, &w->tmp);

    err = err ? err : sp_companions_copy(w->companions, &w->tmp, w->sums);
    for (int i = 0; !err && i < 2; i++) {
        json_t *sums = sp_file_sum_in(&w->tmp, names[i]);

        if (!sums || json_object_set_new(w->sums, names[i], sums))
            err = -EIO;
    }
    err = err ? err : sp_checksums_write(&w->tmp, json_incref(w->sums));
    return err ? err : sp_run_dir_commit(w->dir, w->now.step);
}

static int end_writing(struct sp_writing *w, int err)
{
    if (err && w->tmp.fd >= 0)
        sp_run_dir_abandon(w->dir, w->now.step);
    sp_dir_close(&w->tmp);
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

/* Removes old steps while nothing is written: steps that are not proven do not count. */
static void prune_proven(struct sp_saver *s)
{
    if (s->now || s->saved < 0 || s->proven || s->finite <= s->saved)
        return;
    s->proven = true;
    sp_run_dir_prune(&s->dir, s->saved);
}

/* Writes directly from the stages. */
static int save_now(struct sp_trainer *t, int steps_done)
{
    struct sp_writing w = {.tmp = SP_DIR_CLOSED};
    bool writes = t->world.rank == 0;
    int err = writes ? begin_writing(t, steps_done, &w) : 0;

    for (int i = 0; !err && i < N_FIELDS; i++)
        err = sp_checkpoint_write_in(&t->graph, FIELDS[i], &w.tmp, sp_field_files[FIELDS[i]],
                                     FIELDS[i] == SP_FIELD_W ? w.shard_bytes : 0, w.sums);
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
    int err = 0;

    for (int i = 0; !err && i < N_FIELDS; i++)
        err = sp_snapshot_write(w->copies[i], &w->tmp, sp_field_files[FIELDS[i]],
                                FIELDS[i] == SP_FIELD_W ? w->shard_bytes : 0, w->sums);
    w->err = err ? err : complete(w);
    __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Waits for the thread that writes, if there is one. */
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
    struct sp_writing *w;
    int err = join(&t->saver);

    if (err)
        return err;
    w = writes ? malloc(sizeof *w) : NULL;
    if (writes && !w)
        return sp_error(ENOMEM, "no memory to save step %d", steps_done);
    if (writes) {
        prune_proven(&t->saver);
        err = begin_writing(t, steps_done, w);
    }
    for (int i = 0; !err && i < N_FIELDS; i++)
        err = sp_snapshot_take(&t->graph, FIELDS[i], writes ? &w->copies[i] : &other[i]);
    if (!writes)
        return err;
    if (!err && (err = -pthread_create(&w->thread, NULL, write_copies, w)))
        sp_error(-err, "no thread to save step %d: %s", steps_done, strerror(-err));
    if (err) {
        end_writing(w, err);
        free(w);
        return err;
    }
    t->saver.now = w;
    return 0;
}

/* ---- what the loop calls ---------------------------------------------------------------- */

int sp_trainer_save(struct sp_trainer *t)
{
    int err = sp_train_refuse_call(t, "save", true);

    if (!err && !t->cfg.save)
        err = sp_error(EINVAL, "save: the configuration names no directory for it");
    if (err || t->saver.begun == t->done)
        return err;
    t->saver.begun = t->done;
    sp_watchdog_begin(SP_PHASE_SAVE, "saving step %d", t->done);
    err = t->cfg.save_async ? save_copies(t, t->done) : save_now(t, t->done);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_end();
    return sp_train_fail(t, err);
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

    sp_watchdog_begin(t->cfg.save ? SP_PHASE_SAVE : SP_PHASE_SETUP, "%s",
                      t->cfg.save ? "saving the last step" : "ending the run");
    err = join(&t->saver);
    if (!err)
        prune_proven(&t->saver); /* the last step is not proven, so the one before it stays */
    if (!err)
        sp_transport_barrier();
    sp_watchdog_end();
    return sp_train_fail(t, err);
}

void sp_train_step_back(struct sp_trainer *t)
{
    struct sp_saver *s = &t->saver;
    long older;

    if (t->world.rank || join(s) || s->saved < 0 || s->finite > s->saved)
        return;
    older = sp_run_dir_step_back(&s->dir, s->saved);
    if (older >= 0)
        sp_warn("%s: step %ld, after which the loss or its gradient is not finite, is put aside as "
                "step-%06ld.diverged; step %ld is the newest: go on from it with --resume %s",
                t->cfg.save, s->saved, s->saved, older, t->cfg.save);
}

int sp_train_dump_grads(struct sp_trainer *t)
{
    int err;

    sp_watchdog_begin(SP_PHASE_SAVE, "writing gradients");
    err = sp_checkpoint_write(&t->graph, SP_FIELD_G, t->cfg.dump_grads);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_end();
    return err;
}
