/*
 * The steps of a run. As a rule a step ends on all stages before its update, and the update before
 * the next step. With --post-validation the next step begins at once, as if nothing had to be
 * clipped; when the norm is known and says otherwise, both are undone and done again.
 */
#include "train/trainer.h"
#include "cli/train/progress.h"
#include "sp_error.h"
#include "cli/train/interrupt.h"
#include <math.h>

static bool is_finite(const struct sp_trainer *t)
{
    return isfinite(t->report.loss) && isfinite(t->report.grad_norm);
}

/* Every rank knows the loss and the norm, so all of them stop here. */
static int diverged(struct sp_trainer *t, int step)
{
    if (t->world.rank == 0)
        sp_error(EDOM,
                 "step %d: loss %g, gradient norm %g: the run has diverged; try a lower --lr, or "
                 "SP_CHECK=1 to find the first task that overflows",
                 step, t->report.loss, t->report.grad_norm);
    sp_train_step_back(t);
    return -EDOM;
}

/* Something is read or written between this step and the next. */
static bool pauses_after(const struct sp_trainer *t, int step)
{
    const struct sp_train_args *a = &t->args;

    return step + 1 == a->steps || t->asked || (a->dump_grads && step == t->first_step) ||
           (a->save_every && (step + 1) % a->save_every == 0) || sp_train_reorders_after(t, step) ||
           sp_train_evaluates_after(t, step);
}

/* The report of a step, with what signals asked any process for. */
static void close_step(struct sp_trainer *t)
{
    t->report.asks = sp_interrupt_asked();
    sp_step_finish(&t->graph, &t->report);
    t->asked |= t->report.asked;
    sp_interrupt_clear(t->report.asks & SP_ASK_SAVE);
}

/* A step that was begun, to its end. */
static int finish(struct sp_trainer *t, int step, struct sp_update *hp)
{
    const struct sp_train_args *a = &t->args;
    int err = 0;

    sp_step_rest(&t->graph, NULL, false);
    sp_transport_wait_all();
    close_step(t);
    if (!is_finite(t))
        return diverged(t, step);
    if (a->dump_grads && step == t->first_step)
        err = sp_train_dump_grads(t);
    *hp = sp_train_update(a, step, t->report.grad_norm);
    sp_step_update(&t->graph, hp, &t->report);
    return err;
}

/* The same, with the next step begun before this one has ended. */
static int finish_ahead(struct sp_trainer *t, int step, struct sp_update *hp)
{
    const struct sp_train_args *a = &t->args;

    *hp = sp_train_update(a, step, 0);
    sp_step_rest(&t->graph, hp, a->clip > 0);
    sp_step_update_submit(&t->graph, hp, a->clip > 0);
    sp_step_begin(&t->graph, &t->data, (uint64_t)step + 1);
    close_step(t);
    *hp = sp_train_update(a, step, t->report.grad_norm);
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

/* --save-every, or a signal. */
static int save_after(struct sp_trainer *t, int step)
{
    const struct sp_train_args *a = &t->args;
    bool asked = t->asked & SP_ASK_SAVE;
    int err = 0;

    if (a->save && (asked || (a->save_every && (step + 1) % a->save_every == 0)))
        err = sp_train_save(t, step + 1);
    if (!err && asked && t->world.rank == 0) {
        if (a->save) {
            sp_progress_say((enum sp_progress)a->progress, "%s: saved step %d to %s",
                            sp_interrupt_name(SP_ASK_SAVE), step + 1, a->save);
        } else {
            sp_warn("%s after step %d: nothing to save to, --save DIR was not given",
                    sp_interrupt_name(SP_ASK_SAVE), step + 1);
        }
    }
    t->asked &= ~SP_ASK_SAVE;
    return err;
}

/* Until the last step, or until one is asked to be the last: *done counts them. */
static int run_steps(struct sp_trainer *t, int *done)
{
    const struct sp_train_args *a = &t->args;
    bool begun = false;
    int err = 0, step;

    for (step = t->first_step; !err && step < a->steps; step++) {
        bool ahead = a->post_validation && !pauses_after(t, step);
        struct sp_update hp;

        if ((t->asked & SP_ASK_END) && !begun)
            break;
        if (!begun)
            sp_step_begin(&t->graph, &t->data, (uint64_t)step);
        err = ahead ? finish_ahead(t, step, &hp) : finish(t, step, &hp);
        begun = ahead;
        err = err ? err : sp_train_proven(t, step);
        err = err ? err : sp_train_log_step(t, step, hp.lr);
        err = err ? err : sp_train_note_step(t, step);
        if (!err && sp_train_reorders_after(t, step))
            err = sp_train_reorder(t, step);
        if (!err && sp_train_evaluates_after(t, step))
            err = sp_train_evaluate(t, step);
        if (!err && !begun && step + 1 < a->steps)
            err = save_after(t, step);
    }
    *done = step;
    return err;
}

/* What a run that was asked to end says. 0, or -EINTR where its work is lost. */
static int say_end(const struct sp_trainer *t, int done)
{
    const struct sp_train_args *a = &t->args;
    bool quiet = t->asked & (SP_ASK_PIPE | SP_ASK_HUP);
    const char *by = sp_interrupt_name(t->asked & SP_ASK_END);

    if (t->world.rank == 0 && !quiet && a->save)
        sp_progress_say((enum sp_progress)a->progress,
                        "ended by %s after step %d of %d, saved to %s; go on with --resume %s", by,
                        done, a->steps, a->save, a->save);
    else if (t->world.rank == 0 && !quiet)
        sp_error(EINTR,
                 "ended by %s after step %d of %d: nothing was saved, --save DIR was not given", by,
                 done, a->steps);
    return a->save ? 0 : -EINTR;
}

int sp_train_loop(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int err = sp_train_log_plan(t), done = t->first_step;

    t->started_us = sp_now_us();
    err = err ? err : run_steps(t, &done);
    if (!err && a->eval && a->steps <= t->first_step) /* nothing to train: as the weights are */
        err = sp_train_evaluate(t, t->first_step - 1);
    if (!err && a->save)
        err = sp_train_save(t, done);
    if (!err && a->save)
        err = sp_train_saved_all(t);
    if (err)
        return err;
    if ((t->asked & SP_ASK_END) && done < a->steps)
        return say_end(t, done);
    sp_train_take_typical(t);
    if (t->world.rank == 0 && a->steps > t->first_step)
        sp_train_summary(t);
    if (t->world.rank == 0 && a->trace && a->steps > t->first_step)
        err = sp_train_trace(t);
    if (!err && a->sample)
        err = sp_train_sample(t, a->prompt, a->sample);
    return err;
}
