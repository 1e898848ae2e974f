/*
 * The steps of a run. As a rule a step ends on all stages before its update, and the update before
 * the next step. With --post-validation the next step begins at once, as if nothing had to be
 * clipped; when the norm is known and says otherwise, both are undone and done again.
 */
#include "cli/train.h"
#include "sp_error.h"
#include <math.h>

static double learning_rate(const struct sp_train_args *a, int step)
{
    return step < a->warmup ? a->lr * (step + 1) / a->warmup : a->lr;
}

static struct sp_update update_of(const struct sp_train_args *a, int step, double grad_norm)
{
    return (struct sp_update){
        .lr = (float)learning_rate(a, step),
        .beta1 = (float)a->beta1,
        .beta2 = (float)a->beta2,
        .eps = (float)a->eps,
        .weight_decay = (float)a->weight_decay,
        .bias1 = (float)(1 - pow(a->beta1, step + 1)),
        .bias2 = (float)(1 - pow(a->beta2, step + 1)),
        .factor = (float)(a->clip > 0 && grad_norm > a->clip ? a->clip / (grad_norm + 1e-6) : 1),
    };
}

static bool is_finite(const struct sp_trainer *t)
{
    return isfinite(t->report.loss) && isfinite(t->report.grad_norm);
}

/* Every rank knows the loss and the norm, so all of them stop here. */
static int diverged(const struct sp_trainer *t, int step)
{
    if (t->world.rank == 0)
        sp_error(EDOM,
                 "step %d: loss %g, gradient norm %g: the run has diverged; try a lower --lr, or "
                 "SP_CHECK=1 to find the first task that overflows",
                 step, t->report.loss, t->report.grad_norm);
    return -EDOM;
}

/* Something is read or written between this step and the next. */
static bool pauses_after(const struct sp_trainer *t, int step)
{
    const struct sp_train_args *a = &t->args;

    return step + 1 == a->steps || (a->dump_grads && step == t->first_step) ||
           (a->save_every && (step + 1) % a->save_every == 0) || sp_train_reorders_after(t, step);
}

/* A step that was begun, to its end. */
static int finish(struct sp_trainer *t, int step, struct sp_update *hp)
{
    const struct sp_train_args *a = &t->args;
    int err = 0;

    sp_step_rest(&t->graph, NULL, false);
    sp_transport_wait_all();
    sp_step_finish(&t->graph, &t->report);
    if (!is_finite(t))
        return diverged(t, step);
    if (a->dump_grads && step == t->first_step)
        err = sp_checkpoint_write(&t->graph, SP_FIELD_G, a->dump_grads);
    *hp = update_of(a, step, t->report.grad_norm);
    sp_step_update(&t->graph, hp, &t->report);
    return err;
}

/* The same, with the next step begun before this one has ended. */
static int finish_ahead(struct sp_trainer *t, int step, struct sp_update *hp)
{
    const struct sp_train_args *a = &t->args;

    *hp = update_of(a, step, 0);
    sp_step_rest(&t->graph, hp, a->clip > 0);
    sp_step_update_submit(&t->graph, hp, a->clip > 0);
    sp_step_begin(&t->graph, &t->data, (uint64_t)step + 1);
    sp_step_finish(&t->graph, &t->report);
    *hp = update_of(a, step, t->report.grad_norm);
    if (is_finite(t) && hp->factor >= 1)
        return 0;
    sp_step_undo(&t->graph);
    if (!is_finite(t))
        return diverged(t, step);
    t->rollbacks++;
    sp_step_update_submit(&t->graph, hp, false);
    sp_step_begin(&t->graph, &t->data, (uint64_t)step + 1);
    return 0;
}

static int run_steps(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    bool begun = false;
    int err = 0;

    for (int step = t->first_step; !err && step < a->steps; step++) {
        bool ahead = a->post_validation && !pauses_after(t, step);
        struct sp_update hp;

        if (!begun)
            sp_step_begin(&t->graph, &t->data, (uint64_t)step);
        err = ahead ? finish_ahead(t, step, &hp) : finish(t, step, &hp);
        begun = ahead;
        err = err ? err : sp_train_log_step(t, step, hp.lr);
        if (!err && sp_train_reorders_after(t, step))
            err = sp_train_reorder(t, step);
        if (!err && a->save_every && (step + 1) % a->save_every == 0 && step + 1 < a->steps)
            err = sp_train_save(t, step + 1);
    }
    return err;
}

int sp_train_loop(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int err = sp_train_log_plan(t);

    t->started_us = sp_now_us();
    err = err ? err : run_steps(t);
    if (!err && a->save)
        err = sp_train_save(t, a->steps > t->first_step ? a->steps : t->first_step);
    if (err)
        return err;
    if (t->world.rank == 0 && a->steps > t->first_step)
        sp_train_summary(t);
    if (t->world.rank == 0 && a->trace && a->steps > t->first_step)
        err = sp_train_trace(t);
    if (!err && a->sample)
        err = sp_train_sample(t, a->prompt, a->sample);
    return err;
}
