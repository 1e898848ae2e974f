/* Records of steps that tests make: of list simulations, and with causes planted. */
#ifndef SP_TESTS_RECORDS_H
#define SP_TESTS_RECORDS_H

#include "plan/predict.h"
#include "policies/common.h"
#include "trace/analysis/replay.h"
#include "trace/timeline/timeline.h"
#include <math.h>

/* The record of a plan at costs, each stage a process. */
static inline void record_of(const struct sp_plan *plan, const struct sp_costs *costs,
                             struct sp_timeline *t)
{
    const struct sp_timeline_terms terms = {.plan = plan, .every = 1};
    struct sp_prediction p;

    assert_int_equal(sp_predict_costs(plan, costs, &p), 0);
    assert_int_equal(sp_timeline_of_prediction(&terms, &p, t), 0);
    sp_prediction_destroy(&p);
    snprintf(t->unit, sizeof t->unit, "ms");
}

/* Moves ops and messages to where a replay of changed waits has them; delays are those of readers. */
static inline void rewrite(const struct sp_waits *w, const double *start, const double *end,
                           struct sp_timeline *t)
{
    double *part = calloc((size_t)t->n_ops, sizeof *part);

    assert_non_null(part);
    for (int i = 0; i < t->n_ops; i++)
        part[i] = sp_replay_part(w, i);
    for (int i = 0; i < t->n_ops; i++) {
        const struct sp_unit_of_step *u = &w->unit[w->of_op[i]];
        int k = w->of_op[i];
        struct sp_timeline_op *op = &t->op[i];

        op->start = start[k];
        op->end = end[k];
        op->out = start[k] + part[i] * (end[k] - start[k]);
        op->busy = (u->compute + u->core) / u->ops;
        op->core_wait = u->core / u->ops;
        op->stall = u->before[SP_STEP_OFFLOAD] / u->ops;
        if (u->late > 0)
            op->submitted = start[k] - u->held - u->before[SP_STEP_OFFLOAD];
    }
    free(part);
    for (int i = 0; i < t->n_messages; i++) {
        struct sp_timeline_message *m = &t->message[i];
        const double *delay = m->reader < 0 ? NULL : w->unit[w->of_op[m->reader]].delay;

        if (m->writer < 0 || !delay)
            continue;
        m->ready = m->begun = m->posted = t->op[m->writer].out;
        m->sent = m->ready + delay[SP_STEP_INTERFACE];
        m->arrived = m->sent + delay[SP_STEP_MESSAGE];
        t->op[m->reader].arrived = m->arrived;
    }
}

/* The record once `plant` has changed what its units do and wait for. */
static inline void plant_in(struct sp_timeline *t, void (*plant)(struct sp_waits *w))
{
    struct sp_waits w;
    double *times = calloc(2 * (size_t)t->n_ops, sizeof *times);
    struct sp_replay how = {.with = SP_REPLAY_ALL, .start = times, .end = times + t->n_ops};

    assert_non_null(times);
    assert_int_equal(sp_waits_create(t, &w), 0);
    plant(&w);
    assert_int_equal(sp_replay(&w, &how, &t->span), 0);
    rewrite(&w, how.start, how.end, t);
    t->length = t->span;
    for (int s = 0; s < t->stages; s++) {
        t->stage[s].busy = 0;
        for (int i = t->first_op[s]; i < t->first_op[s + 1]; i++)
            t->stage[s].busy += t->op[i].busy;
        t->stage[s].idle = t->span - t->stage[s].busy;
        t->stage[s].bubble = t->stage[s].idle / t->span;
        t->length = fmax(t->length, t->span + t->stage[s].update);
    }
    sp_waits_destroy(&w);
    free(times);
}

#endif
