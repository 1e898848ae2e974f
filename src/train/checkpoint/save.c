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

/* ---- the directory ---------------------------------------------------------------------- */

/* Bytes of parameters and moments, of the rest of their files, and of the model's companions. */
static uint64_t checkpoint_bytes(const struct sp_trainer *t)
{
    return 12 * sp_model_parameters(&t->model) + (1 << 20) + sp_companions_bytes(&t->companions);
}

int sp_train_lock(struct sp_trainer *t)
{
    return t->cfg.save ? sp_run_dir_lock(&t->saver.dir, t->cfg.save) : 0;
}

int sp_train_claim(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_saver *s = &t->saver;
    int err;

    if (!a->save)
        return 0;
    err = sp_run_dir_claim(&s->dir, a->resume ? &t->resumed_dir : NULL, a->keep, a->overwrite);
    if (err)
        return err;
    s->saved = s->dir.resumed; /* the first loss proves it */
    return sp_run_dir_room(&s->dir, checkpoint_bytes(t));
}

/* ---- a checkpoint ------------------------------------------------------------------------ */

/* A checkpoint that is being written, on rank 0. */
struct sp_writing {
    struct sp_trainer *t;
    struct sp_run_config now;
    struct sp_dir tmp; /* step-N.tmp */
    json_t *sums;
    struct sp_snapshot *copies[SP_SAVED_FIELDS]; /* --save-async */
    pthread_t thread;
    bool done; /* set by the thread */
    int err;
};

/* Begins step-N.tmp. Its first file is state.json, which tells whose directory it is. */
static int begin_writing(struct sp_writing *w)
{
    struct sp_run_dir *dir = &w->t->saver.dir;
    int err = sp_run_dir_room(dir, checkpoint_bytes(w->t));

    err = err ? err : sp_run_dir_begin(dir, w->now.step, &w->tmp);
    return err ? err : sp_run_state_write(&w->tmp, &w->now);
}

/* Bytes of a file of this field; 0: no limit. */
static uint64_t shard_bytes(const struct sp_trainer *t, enum sp_field field)
{
    return field == SP_FIELD_W ? t->cfg.shard_size : 0;
}

/* Writes the small files and the checksums of all; then it is a step. */
static int complete(struct sp_writing *w)
{
    static const char *const names[] = {"config.json", "state.json"};
    struct sp_trainer *t = w->t;
    int err = sp_model_write_config_as_read(&t->model, &t->companions, &w->tmp);

    err = err ? err : sp_companions_copy(&t->companions, &w->tmp, w->sums);
    for (int i = 0; !err && i < 2; i++) {
        json_t *sums = sp_file_sum_in(&w->tmp, names[i]);

        if (!sums || json_object_set_new(w->sums, names[i], sums))
            err = -EIO;
    }
    err = err ? err : sp_checksums_write(&w->tmp, json_incref(w->sums));
    return err ? err : sp_run_dir_commit(&t->saver.dir, w->now.step);
}

static int end_writing(struct sp_writing *w, int err)
{
    struct sp_saver *s = &w->t->saver;

    if (err && w->tmp.fd >= 0)
        sp_run_dir_abandon(&s->dir, w->now.step);
    if (!err) {
        s->saved = w->now.step;
        s->proven = false;
    }
    sp_dir_close(&w->tmp);
    json_decref(w->sums);
    for (int i = 0; i < SP_SAVED_FIELDS; i++)
        sp_snapshot_free(w->copies[i]);
    free(w);
    return err;
}

/* The thread of --save-async. */
static void *write_copies(void *arg)
{
    struct sp_writing *w = arg;
    int err = 0;

    for (int i = 0; !err && i < SP_SAVED_FIELDS; i++)
        err = sp_snapshot_write(w->copies[i], &w->tmp, sp_saved_fields[i].file,
                                shard_bytes(w->t, sp_saved_fields[i].field), w->sums);
    w->err = err ? err : complete(w);
    __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Waits for the thread that writes, if there is one. */
static int join(struct sp_saver *s)
{
    struct sp_writing *w = s->now;

    if (!w)
        return 0;
    s->now = NULL;
    pthread_join(w->thread, NULL);
    return end_writing(w, w->err);
}

/* Removes old steps while nothing is written: steps that are not proven do not count. */
static void prune_proven(struct sp_saver *s)
{
    if (s->now || s->saved < 0 || s->proven || s->finite <= s->saved)
        return;
    s->proven = true;
    sp_run_dir_prune(&s->dir, s->saved);
}

/* Saves the step, directly from the stages, or with --save-async from copies of what they have. All ranks hand over their
 * parts; rank 0 writes. */
static int save(struct sp_trainer *t)
{
    struct sp_writing part = {.tmp = SP_DIR_CLOSED}, *w = &part;
    bool writes = t->world.rank == 0;
    int err = join(&t->saver);

    if (err)
        return err;
    if (writes) {
        prune_proven(&t->saver);
        w = malloc(sizeof *w);
        if (!w)
            return sp_error(ENOMEM, "no memory to save step %d", t->done);
        *w = (struct sp_writing){
            .t = t, .now = sp_train_state(t, t->done), .tmp = SP_DIR_CLOSED, .sums = json_object()};
        err = begin_writing(w);
    }
    for (int i = 0; !err && i < SP_SAVED_FIELDS; i++) {
        const struct sp_saved_field *f = &sp_saved_fields[i];

        err = t->cfg.save_async ? sp_snapshot_take(&t->graph, f->field, &w->copies[i])
                                : sp_checkpoint_write_in(&t->graph, f->field, &w->tmp, f->file,
                                                         shard_bytes(t, f->field), w->sums);
    }
    if (!writes)
        return err;
    if (err || !t->cfg.save_async)
        return end_writing(w, err ? err : complete(w));
    err = pthread_create(&w->thread, NULL, write_copies, w);
    if (err)
        return end_writing(w,
                           sp_error(err, "no thread to save step %d: %s", t->done, strerror(err)));
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
    err = save(t);
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
