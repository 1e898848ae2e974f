/*
 * The steps of a run, and its evaluations. As a rule a step ends on all stages before its update, and the update before
 * the next step. With --post-validation the next step begins at once, as if nothing had to be
 * clipped; if the norm, once known, says otherwise, both are undone and done again.
 */
#include "train/run/step.h"
#include "graphs/inference/inference.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include "train/checkpoint/save.h"
#include "train/config.h"
#include "train/run/log.h"
#include "train/run/replan.h"
#include "train/run/watchdog.h"
#include "transport/transport.h"
#include <math.h>

struct sp_update sp_train_update(const struct sp_train_config *a, int step, double grad_norm)
{
    struct sp_lr_schedule lr = sp_train_lr(a);

    return (struct sp_update){
        .lr = (float)sp_lr_at(&lr, step),
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
static int diverged(struct sp_trainer *t, int step)
{
    if (t->world.rank == 0)
        sp_error(EDOM,
                 "step %d: loss %g, gradient norm %g: the run has diverged; try a lower --lr, or "
                 "SP_CHECK=1 to find the first task that overflows",
                 step + 1, t->report.loss, t->report.grad_norm);
    t->diverged = true;
    sp_train_step_back(t);
    return -EDOM;
}

/* Completes the report of a step with what any process asks for. */
static void close_step(struct sp_trainer *t)
{
    t->report.asks = t->cfg.asks ? t->cfg.asks(t->cfg.arg) : 0;
    sp_step_finish(&t->graph, &t->report);
}

/* Updates after each batch within a step, each a step of the optimizer; NULL if the step has
 * only one update. */
static const struct sp_update *updates_of(struct sp_trainer *t, int step)
{
    const struct sp_train_config *a = &t->cfg;
    int n = sp_updates(&t->plan.layout);

    for (int i = 0; t->updates && i < n; i++) {
        double done = (double)step * n + i + 1;

        t->updates[i] = sp_train_update(a, step, 0);
        t->updates[i].bias1 = (float)(1 - pow(a->beta1, done));
        t->updates[i].bias2 = (float)(1 - pow(a->beta2, done));
    }
    return t->updates;
}

/* Fills the meters in from the report. */
static void fill(struct sp_trainer *t, double lr, struct sp_meters *m)
{
    const struct sp_step_report *r = &t->report;

    for (int s = 0; s < t->place.stages; s++) {
        const struct sp_stage_report *from = &r->stages[s];

        t->meters[s] = (struct sp_stage_meters){.busy_ms = from->busy_us / 1e3,
                                                .idle_ms = from->idle_us / 1e3,
                                                .comm_wait_ms = from->comm_wait_us / 1e3,
                                                .bubble = from->bubble_ratio,
                                                .peak_bytes = from->peak_bytes,
                                                .bytes_sent = from->bytes_sent};
    }
    *m = (struct sp_meters){.step = t->done,
                            .loss = r->loss,
                            .grad_norm = r->grad_norm,
                            .lr = lr,
                            .tokens = sp_train_step_tokens(t),
                            .step_ms = r->step_us / 1e3,
                            .bubble = sp_train_bubble(t),
                            .asked = r->asked,
                            .stages = t->place.stages,
                            .stage = t->meters};
}

double sp_train_bubble(const struct sp_trainer *t)
{
    double sum = 0;

    for (int s = 0; s < t->place.stages; s++)
        sum += t->report.stages[s].bubble_ratio;
    return sum / t->place.stages;
}

/* Begins a step: meters are cleared, the update before it having cleared the gradients, tokens are filled in, and the
 * forwards before the first backward are submitted. */
static void begin(struct sp_trainer *t, int step)
{
    sp_step_begin(&t->graph, &t->data, (uint64_t)step);
}

/* Forgets the update and the beginning of the next step, and makes both once more, now with a clipped gradient. */
static void redo_ahead(struct sp_trainer *t, int step, const struct sp_update *hp)
{
    sp_step_undo(&t->graph);
    t->rollbacks++;
    sp_step_update_submit(&t->graph, hp, false);
    begin(t, step + 1);
}

/* Before a step: another order, or another layout, at the times that the run measured. */
static int rearrange(struct sp_trainer *t)
{
    if (t->begun)
        return 0;
    if (sp_train_reorders(t))
        return sp_train_reorder(t);
    return sp_train_replans(t) ? sp_train_replan(t) : 0;
}

/* With --post-validation, unless something is to be done between this step and the next. */
static bool begins_ahead(const struct sp_trainer *t, int step)
{
    return t->cfg.post_validation && !sp_train_reorders(t) &&
           !(t->cfg.dump_grads && step == t->first_step);
}

/* A step. `ahead`, its update and the beginning of the next step are submitted before the norm is known, as if nothing had
 * to be clipped. */
static int run_step(struct sp_trainer *t, bool more, struct sp_update *hp)
{
    bool clips = t->cfg.clip > 0, ahead;
    int step = t->done, err = rearrange(t);

    if (err)
        return err;
    if (!t->begun)
        begin(t, step);
    t->begun = false;
    t->done++;
    ahead = more && begins_ahead(t, step);
    *hp = sp_train_update(&t->cfg, step, 0);

    /* forward and backward of all micro-batches, and the sums of replicas */
    sp_step_rest(&t->graph, ahead ? hp : updates_of(t, step), ahead && clips);
    if (ahead) {
        sp_step_update_submit(&t->graph, hp, clips);
        begin(t, step + 1);
    } else {
        sp_transport_wait_all();
    }

    /* loss and norm, on every rank */
    close_step(t);
    if (!is_finite(t)) {
        if (ahead)
            sp_step_undo(&t->graph);
        return diverged(t, step);
    }

    /* clip, update */
    *hp = sp_train_update(&t->cfg, step, t->report.grad_norm);
    if (t->cfg.dump_grads && step == t->first_step)
        err = sp_train_dump_grads(t);
    if (!ahead)
        sp_step_update(&t->graph, hp, &t->report);
    else if (hp->factor < 1)
        redo_ahead(t, step, hp);
    t->begun = ahead;

    /* what the step tells of its layout, of the checkpoint before it, and in the log */
    err = err ? err : sp_train_look(t);
    err = err ? err : sp_train_proven(t, step);
    return err ? err : sp_train_log_step(t, step, hp->lr);
}

int sp_trainer_step(struct sp_trainer *t, bool more, struct sp_meters *m)
{
    struct sp_update hp;
    int err = sp_train_refuse_call(t, "step", false);

    if (err)
        return err;
    sp_watchdog_begin(SP_PHASE_STEP, "training step %d", t->done + 1);
    err = run_step(t, more, &hp);
    sp_watchdog_end();
    if (err)
        return sp_train_fail(t, err);
    if (m)
        fill(t, hp.lr, m);
    return 0;
}

/* ---- --eval: the loss on a held-out file, at intervals and at the end -------------------------- */

int sp_trainer_evaluate(struct sp_trainer *t, double *loss)
{
    double start = sp_now_us();
    int err = sp_train_refuse_call(t, "evaluate", true);

    if (!err && !t->eval_steps)
        err = sp_error(EINVAL, "evaluate: the configuration names no file of tokens for it");
    if (err)
        return err;
    sp_watchdog_begin(SP_PHASE_EVALUATE, "evaluating after step %d", t->done);
    err = sp_evaluate(&t->graph, &t->eval_data, t->eval_steps, &t->eval_loss);
    sp_watchdog_end();
    if (err)
        return sp_train_fail(t, err);
    t->eval_ms = (sp_now_us() - start) / 1e3;
    *loss = t->eval_loss;
    if (isfinite(t->eval_loss))
        return sp_train_fail(t, sp_train_log_eval(t));
    t->diverged = true;
    if (t->world.rank == 0)
        sp_error(EDOM, "step %d: loss %g on %s: the run has diverged; try a lower --lr", t->done,
                 t->eval_loss, t->cfg.eval);
    return -EDOM;
}
