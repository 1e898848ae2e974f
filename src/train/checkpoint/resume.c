/* A run begins with the step that it continues from, with its own weights and moments in another layout, or with neither. */
#include "train/checkpoint/resume.h"
#include "graphs/weights/checkpoint.h"
#include "model/files/checksums.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct sp_saved_field sp_saved_fields[] = {
    {SP_FIELD_W, "model.safetensors"},
    {SP_FIELD_M, "optimizer-m.safetensors"},
    {SP_FIELD_V, "optimizer-v.safetensors"},
};

struct sp_run_config sp_train_state(const struct sp_trainer *t, int steps_done)
{
    const struct sp_train_config *a = &t->cfg;

    return (struct sp_run_config){.schedule = t->plan.def->name,
                                  .settings = t->settings,
                                  .data = a->tokens ? a->tokens : a->data,
                                  .tokens = &t->data,
                                  .step = steps_done,
                                  .samples = sp_train_samples(t, steps_done),
                                  .step_samples = (int)sp_train_step_samples(t),
                                  .seed = t->seed,
                                  .loss =
                                      steps_done > t->first_step ? t->report.loss : t->resumed.loss,
                                  .companions = &t->companions};
}

int sp_train_find_resume(struct sp_trainer *t)
{
    int err;

    if (!t->cfg.resume)
        return 0;
    err = sp_step_open(t->cfg.resume, &t->resumed_dir);
    err = err ? err : sp_run_state_read(&t->resumed_dir, &t->resumed);
    if (err)
        return err;
    t->first_step = t->resumed.step;
    if (!t->cfg.seed_set)
        t->seed = t->resumed.seed;
    return 0;
}

/* Opens and checks a file of weights or moments; fills the stages with it if `load`. */
static int read_field(struct sp_trainer *t, const struct sp_dir *dir,
                      const struct sp_saved_field *f, bool load)
{
    struct sp_st_file st;
    int err = sp_st_open_in(dir, f->file, &st);

    if (err)
        return err;
    err = sp_weights_check(&st, &t->params);
    if (!err && load)
        err = f->field == SP_FIELD_W ? sp_checkpoint_init(&t->graph, &st)
                                     : sp_checkpoint_read(&t->graph, f->field, &st);
    sp_st_close(&st);
    return err;
}

static int read_moments(struct sp_trainer *t, bool load)
{
    int err = read_field(t, &t->resumed_dir, &sp_saved_fields[1], load);

    return err ? err : read_field(t, &t->resumed_dir, &sp_saved_fields[2], load);
}

int sp_train_check_resume(struct sp_trainer *t)
{
    static const char *const names[] = {"config.json", "state.json", "optimizer-m.safetensors",
                                        "optimizer-v.safetensors", NULL};
    int err;

    if (!t->cfg.resume)
        return 0;
    err = sp_checksums_verify(&t->resumed_dir, names, t->world.rank, t->world.size);
    if (err == -ENOENT && t->resumed.format > 1)
        err = sp_error(EINVAL, "cannot resume: %s/" SP_CHECKSUMS_FILE " is missing",
                       t->resumed_dir.path);
    else if (err == -ENOENT && t->world.rank == 0)
        sp_warn("%s was saved without checksums, by an older version", t->resumed_dir.path);
    return err && err != -ENOENT ? err : read_moments(t, false);
}

/* Fills the graph with what the layout before this one left. */
static int load_carried(struct sp_trainer *t)
{
    struct sp_dir dir;
    int err = sp_dir_open(t->choice->carried, &dir);

    if (err)
        return sp_error(-err, "cannot read %s: %s", t->choice->carried, strerror(-err));
    for (int i = 0; !err && i < SP_SAVED_FIELDS; i++)
        err = read_field(t, &dir, &sp_saved_fields[i], true);
    sp_dir_close(&dir);
    return err;
}

int sp_train_load(struct sp_trainer *t)
{
    int err = 0;

    if (t->choice && *t->choice->carried)
        return load_carried(t);
    if (!t->cfg.inference)
        err = sp_checkpoint_init(&t->graph, t->weights.n_shards ? &t->weights : NULL);
    if (err || !t->cfg.resume)
        return err;
    err = read_moments(t, true);
    /* a removed step takes room on the disk while its files are open */
    sp_dir_close(&t->resumed_dir);
    sp_st_close(&t->weights);
    return err;
}

/* The next sample if the run's samples had another length: the first one whose tokens were not
 * seen. */
static uint64_t next_sample(const struct sp_run_state *s, int seq)
{
    uint64_t was = (uint64_t)s->seq, is = (uint64_t)seq;

    if (!was || was == is)
        return s->samples;
    return s->samples / is * was + (s->samples % is * was + is - 1) / is;
}

int sp_train_find_place(struct sp_trainer *t)
{
    if (t->cfg.resume)
        t->data.origin = next_sample(&t->resumed, t->cfg.layout.seq) -
                         (uint64_t)t->first_step * (uint64_t)sp_train_step_samples(t);
    return 0;
}

void sp_train_tell_changes(const struct sp_trainer *t)
{
    struct sp_run_config now = sp_train_state(t, t->first_step);
    char changes[4096];

    if (!t->cfg.resume)
        return;
    if (sp_run_state_changes(&t->resumed, &now, changes, sizeof changes))
        sp_warn("%s was saved by a run that was told otherwise: now %s", t->resumed_dir.path,
                changes);
    sp_run_state_other_changes(&t->resumed, &now, changes, sizeof changes);
    if (!t->cfg.dry_run) /* a dry run prints something else there */
        sp_train_say(t, "goes on from %s, at sample %llu%s%s", t->resumed_dir.path,
                     (unsigned long long)now.samples, *changes ? ", with " : "", changes);
}

/* ---- another layout ------------------------------------------------------------------------ */

static void name_carried(const struct sp_trainer *t, int i, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 64, t->choice->carried, sp_saved_fields[i].file);
}

int sp_train_write_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];
    int err = 0;

    for (int i = 0; i < SP_SAVED_FIELDS && !err; i++) {
        name_carried(t, i, path);
        err = sp_checkpoint_write(&t->graph, sp_saved_fields[i].field, path);
    }
    return err;
}

void sp_train_remove_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];

    for (int i = 0; i < SP_SAVED_FIELDS && t->world.rank == 0; i++) {
        name_carried(t, i, path);
        unlink(path);
    }
    if (t->world.rank == 0)
        rmdir(t->choice->carried);
    *t->choice->carried = '\0';
}
