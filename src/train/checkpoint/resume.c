/* Finds the step from which a run continues, and takes over its state. */
#include "train/checkpoint/resume.h"
#include "graphs/weights/checkpoint.h"
#include "model/files/checksums.h"
#include "sp_error.h"

const char *const sp_field_files[] = {
    [SP_FIELD_W] = "model.safetensors",
    [SP_FIELD_M] = "optimizer-m.safetensors",
    [SP_FIELD_V] = "optimizer-v.safetensors",
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

/* Opens and checks one file of the optimizer; reads it into the stages if `load`. */
static int moment(struct sp_trainer *t, enum sp_field field, bool load)
{
    struct sp_st_file st;
    int err = sp_st_open_in(&t->resumed_dir, sp_field_files[field], &st);

    if (err)
        return err;
    err = sp_weights_check(&st, &t->params);
    if (!err && load)
        err = sp_checkpoint_read(&t->graph, field, &st);
    sp_st_close(&st);
    return err;
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
    err = err == -ENOENT ? 0 : err;
    err = err ? err : moment(t, SP_FIELD_M, false);
    return err ? err : moment(t, SP_FIELD_V, false);
}

int sp_train_load_resume(struct sp_trainer *t)
{
    int err = moment(t, SP_FIELD_M, true);

    err = err ? err : moment(t, SP_FIELD_V, true);
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
