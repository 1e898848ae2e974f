/* The record of a list simulation. */
#include "plan/predict.h"
#include "trace/timeline/timeline.h"
#include <errno.h>
#include <math.h>
#include <string.h>

static int number_of(const struct sp_timeline *t, int stage, int index)
{
    return index < 0 ? -1 : t->first_op[stage] + index;
}

static int add_messages(const struct sp_timeline_terms *terms, const struct sp_prediction *p,
                        struct sp_timeline *t)
{
    int err = 0;

    for (int i = 0; !err && i < p->messages.n; i++) {
        const struct sp_step_message *m = &p->messages.message[i];
        struct sp_timeline_message out = {.kind = (enum sp_action_kind)m->kind,
                                          .bytes = m->bytes,
                                          .from = m->from,
                                          .to = m->to,
                                          .writer = number_of(t, m->writer_stage, m->writer),
                                          .reader = number_of(t, m->to, m->reader),
                                          .ready = p->when.ready[i],
                                          .sent = p->when.sent[i],
                                          .arrived = p->when.arrived[i]};

        out.posted = out.begun = out.ready;
        sp_tensor_print(terms->plan, &m->tensor, out.tensor);
        err = sp_timeline_add_message(t, &out);
        /* for a collective: the bytes that this stage sends */
        if (sp_timeline_crosses(t, &out))
            t->stage[sp_step_message_is_sent(m) ? m->from : m->to].bytes_sent += m->bytes;
        t->stage[m->from].left += m->kind == SP_ACTION_EVICT ? m->bytes : 0;
        t->stage[m->from].returned += m->kind == SP_ACTION_FETCH ? m->bytes : 0;
        /* output that an op produces early lets others continue before its end */
        if (out.writer >= 0 && out.ready < t->op[out.writer].out && !sp_timeline_is_move(&out) &&
            !m->beside)
            t->op[out.writer].out = fmax(out.ready, t->op[out.writer].start);
    }
    return err;
}

static void add_times(const struct sp_plan *plan, const struct sp_prediction *p,
                      struct sp_timeline *t)
{
    for (int i = 0; i < t->n_ops; i++) {
        struct sp_timeline_op *op = &t->op[i];

        op->start = p->times.start[op->stage][op->index];
        op->end = op->out = p->times.end[op->stage][op->index];
        op->exchange = sp_prediction_exchange(plan, p, op->stage, &op->op);
        op->busy = fmax(op->end - op->start - op->exchange, 0);
        op->stall = p->when.stall ? p->when.stall[i] : 0; /* it starts later by as much */
    }
    /* two overlapping ops share the time */
    for (int i = 0; i + 1 < t->n_ops; i++)
        if (t->op[i].op.overlap) {
            t->op[i].busy /= 2;
            t->op[i + 1].busy /= 2;
        }
}

/* A run may order ops more strictly than messages do, but the simulation knows messages alone.
 * Drops the dependencies that an op did not wait for. */
static void drop_deps(struct sp_timeline *t)
{
    int n = 0;

    for (int i = 0; i < t->n_ops; i++) {
        struct sp_timeline_op *op = &t->op[i];
        int first = n;

        for (int d = op->first_dep; d < op->first_dep + op->deps; d++) {
            const struct sp_timeline_op *from = &t->op[t->dep[d].op];
            double at = t->dep[d].beside ? from->start : from->out;

            if (at <= op->start + 1e-9 * t->span)
                t->dep[n++] = t->dep[d];
        }
        op->first_dep = first;
        op->deps = n - first;
    }
    t->n_deps = n;
}

static void add_totals(const struct sp_prediction *p, struct sp_timeline *t)
{
    t->span = p->times.makespan;
    t->length = fmax(p->step_ms, t->span);
    t->bubble = p->times.bubble_ratio;
    for (int s = 0; s < t->stages; s++) {
        struct sp_timeline_stage *st = &t->stage[s];

        for (int i = t->first_op[s]; i < t->first_op[s + 1]; i++)
            st->busy += t->op[i].busy;
        st->idle = t->span - st->busy;
        st->bubble = t->span > 0 ? st->idle / t->span : 0;
        st->update = p->update_ms;
        st->stall = p->when.stalled ? p->when.stalled[s] : 0;
    }
}

int sp_timeline_of_prediction(const struct sp_timeline_terms *terms, const struct sp_prediction *p,
                              struct sp_timeline *t)
{
    int err = sp_timeline_of_plan(terms, t);

    if (err)
        return err;
    t->source = SP_TIMELINE_PREDICTED;
    add_times(terms->plan, p, t);
    err = add_messages(terms, p, t);
    add_totals(p, t);
    drop_deps(t);
    err = err ? err : sp_timeline_finish(t);
    if (err)
        sp_timeline_destroy(t);
    return err;
}
