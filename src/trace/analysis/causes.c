#include "trace/analysis/causes.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- ops of one kind ------------------------------------------------------------------------- */

struct of_kind {
    int op;
    uint64_t kind[2];
    double value;
};

static void set_kind(const struct sp_timeline *t, int op, struct of_kind *k)
{
    const struct sp_timeline_op *o = &t->op[op];

    k->op = op;
    k->kind[0] = (uint64_t)o->op.pass << 32 | (uint64_t)o->op.part << 24 | o->op.slice;
    k->kind[1] = (uint64_t)(uint32_t)o->op.chunk << 1 | o->split;
}

static int compare_kinds(const struct of_kind *a, const struct of_kind *b)
{
    for (int i = 0; i < 2; i++)
        if (a->kind[i] != b->kind[i])
            return a->kind[i] < b->kind[i] ? -1 : 1;
    return 0;
}

static int compare(const void *x, const void *y)
{
    const struct of_kind *a = x, *b = y;
    int kinds = compare_kinds(a, b);

    return kinds ? kinds : (a->value > b->value) - (a->value < b->value);
}

/* usual[op] = the median of value[op] over the ops of the same kind and stage. */
static void medians(const struct sp_timeline *t, int stage, const double *value,
                    struct of_kind *ops, double *usual)
{
    int n = t->first_op[stage + 1] - t->first_op[stage];

    for (int i = 0; i < n; i++) {
        set_kind(t, t->first_op[stage] + i, &ops[i]);
        ops[i].value = value[ops[i].op];
    }
    qsort(ops, (size_t)n, sizeof *ops, compare);
    for (int first = 0, end; first < n; first = end) {
        double median;

        for (end = first + 1; end < n && !compare_kinds(&ops[first], &ops[end]);)
            end++;
        median = (ops[(first + end - 1) / 2].value + ops[(first + end) / 2].value) / 2;
        for (int i = first; i < end; i++)
            usual[ops[i].op] = median;
    }
}

int sp_causes_usual(const struct sp_waits *w, double *compute, double *part)
{
    const struct sp_timeline *t = w->t;
    size_t n = (size_t)t->n_ops + 1;
    double *value = calloc(3 * n, sizeof *value);
    struct of_kind *ops = malloc(n * sizeof *ops);

    if (!value || !ops) {
        free(value);
        free(ops);
        return -ENOMEM;
    }
    for (int i = 0; i < t->n_ops; i++) {
        value[i] = t->op[i].busy - t->op[i].core_wait;
        value[n + (size_t)i] = sp_replay_part(w, i);
    }
    for (int s = 0; s < t->stages; s++) {
        medians(t, s, value, ops, value + 2 * n);
        medians(t, s, value + n, ops, part);
    }
    for (int k = 0; k < w->n; k++) {
        compute[k] = 0;
        for (int i = w->unit[k].op; i < w->unit[k].op + w->unit[k].ops; i++)
            compute[k] += value[2 * n + (size_t)i];
    }
    free(value);
    free(ops);
    return 0;
}

/* ---- the split ------------------------------------------------------------------------------- */

/* The mean time that stages are busy: their units compute for compute[units], and with `cores` they
 * also wait for cores. */
static double mean_busy(const struct sp_waits *w, const double *compute, bool cores)
{
    double sum = 0;

    for (int k = 0; k < w->n; k++)
        sum += (compute ? compute[k] : w->unit[k].compute) + (cores ? w->unit[k].core : 0);
    return sum / w->t->stages;
}

static void measure(const struct sp_timeline *t, struct sp_causes *c)
{
    *c = (struct sp_causes){0};
    for (int s = 0; s < t->stages; s++) {
        c->measured_ms += (t->stage[s].busy + t->stage[s].idle) / t->stages;
        c->measured_bubble += t->stage[s].bubble / t->stages;
    }
}

int sp_causes_find(const struct sp_waits *w, struct sp_causes *c)
{
    enum { BIT_CORES = 1 << SP_STEP_CORE, BIT_OFFLOAD = 1 << SP_STEP_OFFLOAD };
    const unsigned offload = BIT_CORES | BIT_OFFLOAD;
    const unsigned runtime = offload | 1 << SP_STEP_SUBMISSION | 1 << SP_STEP_ENGINE;
    /* a worker's work for the step before does not count as runtime */
    const unsigned known = w->t->overlaps ? offload : runtime;
    const unsigned all = known | 1 << SP_STEP_INTERFACE | 1 << SP_STEP_MESSAGE;
    const unsigned with[] = {0, 0, BIT_CORES, offload, known, all};
    double *compute = calloc((size_t)w->n + (size_t)w->t->n_ops + 1, sizeof *compute);
    double *part = compute ? compute + w->n : NULL, ms = 0, bubble = 0;
    int err = compute ? sp_causes_usual(w, compute, part) : -ENOMEM;

    measure(w->t, c);
    for (int k = 0; !err && k < SP_CAUSE_REST; k++) {
        bool usual = k == SP_CAUSE_SCHEDULE;
        struct sp_replay how = {
            .with = with[k], .compute = usual ? compute : NULL, .part = usual ? part : NULL};
        double makespan, now;

        err = sp_replay(w, &how, &makespan);
        if (err)
            break;
        now = makespan > 0 ? 1 - mean_busy(w, how.compute, with[k] >> SP_STEP_CORE & 1) / makespan
                           : 0;
        c->ms[k] = makespan - ms;
        c->bubble[k] = now - bubble;
        ms = makespan;
        bubble = now;
    }
    c->ms[SP_CAUSE_REST] = c->measured_ms - ms;
    c->bubble[SP_CAUSE_REST] = c->measured_bubble - bubble;
    free(compute);
    return err;
}

/* ---- the step as the schedule would have it -------------------------------------------------- */

/* A copy of ops, stages and dependencies, without messages. */
static int copy(const struct sp_timeline *from, struct sp_timeline *to)
{
    struct sp_timeline own;
    int err = sp_timeline_create(from->stages, from->n_ops, from->n_deps, &own);

    if (err)
        return err;
    *to = *from;
    to->options = NULL;
    to->stage = memcpy(own.stage, from->stage, (size_t)from->stages * sizeof *own.stage);
    to->first_op =
        memcpy(own.first_op, from->first_op, ((size_t)from->stages + 1) * sizeof *own.first_op);
    to->op = memcpy(own.op, from->op, (size_t)from->n_ops * sizeof *own.op);
    to->dep = memcpy(own.dep, from->dep, (size_t)from->n_deps * sizeof *own.dep);
    to->order = memcpy(own.order, from->order, (size_t)from->n_ops * sizeof *own.order);
    to->message = NULL;
    to->n_messages = 0;
    to->cap_messages = 0;
    return 0;
}

/* Sums busy and idle times again after the ops' times have changed. */
static void sum_stages(struct sp_timeline *t)
{
    t->bubble = 0;
    for (int s = 0; s < t->stages; s++) {
        struct sp_timeline_stage *st = &t->stage[s];

        st->busy = st->core_wait = st->comm_wait = 0;
        for (int i = t->first_op[s]; i < t->first_op[s + 1]; i++)
            st->busy += t->op[i].busy;
        st->idle = t->span - st->busy;
        st->bubble = t->span > 0 ? st->idle / t->span : 0;
        t->bubble += st->bubble / t->stages;
    }
}

int sp_causes_expected(const struct sp_waits *w, struct sp_timeline *expected)
{
    size_t units = (size_t)w->n + 1;
    double *compute = calloc(3 * units + (size_t)w->t->n_ops, sizeof *compute);
    struct sp_replay how = {.compute = compute};
    int err = compute ? copy(w->t, expected) : -ENOMEM;

    if (err) {
        free(compute);
        return err;
    }
    how.start = compute + units;
    how.end = how.start + units;
    how.part = how.end + units;
    err = sp_causes_usual(w, compute, (double *)how.part);
    err = err ? err : sp_replay(w, &how, &expected->span);
    for (int i = 0; !err && i < expected->n_ops; i++) {
        struct sp_timeline_op *op = &expected->op[i];
        int k = w->of_op[i];

        op->start = how.start[k];
        op->end = how.end[k];
        op->out = op->start + how.part[i] * (op->end - op->start);
        op->busy = compute[k] / w->unit[k].ops;
        op->core_wait = op->stall = op->late = op->exchange = 0;
        op->submitted = op->ready = op->arrived = NAN;
    }
    expected->length = expected->span;
    expected->source = SP_TIMELINE_PREDICTED;
    free(compute);
    if (err)
        sp_timeline_destroy(expected);
    else
        sum_stages(expected);
    return err;
}
