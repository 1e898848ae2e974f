#include "trace/timeline/timeline.h"
#include "graphs/report/report.h"
#include "policies/lowering/lowering.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The two ends of a message of the step; NULL if both are in one process. */
struct ends {
    const struct sp_message_end *send, *recv;
};

struct walk {
    const struct sp_timeline_terms *terms;
    const struct sp_step_report *report;
    struct sp_timeline *t;
    struct ends *ends; /* [numbers] */
    int *message;      /* [numbers] index in t->message of a SEND; -1: none */
    int numbers;
    double *now;       /* [stages] the end of the last op that ran */
    double *left_free; /* [stages] the end of the last eviction */
    int err;
};

/* Converts a time to milliseconds; NaN: unknown. */
static double ms(double us)
{
    return us == 0 ? NAN : us / 1e3;
}

/* The number of an action's op; -1: none. */
static int op_of(const struct walk *w, int stage, int index)
{
    int first = w->t->first_op[stage];

    return index >= 0 && index < w->t->first_op[stage + 1] - first ? first + index : -1;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Takes the ends of all messages, or only counts their numbers as long as there is no room. */
static void pair_ends(struct walk *w)
{
    for (int s = 0; s < w->t->stages; s++)
        for (int i = 0; i < w->report->stages[s].n_messages; i++) {
            const struct sp_message_end *e = &w->report->stages[s].messages[i];

            if (e->number >= w->numbers)
                w->numbers = e->number + 1;
            if (e->number >= 0 && w->ends)
                *(e->sends ? &w->ends[e->number].send : &w->ends[e->number].recv) = e;
        }
}

/* Merges the measured times of n messages `number`, `number` + step, ...: the whole is ready, sent
 * and received with the last of them. */
static void take_times(const struct walk *w, int64_t number, int n, int step,
                       struct sp_timeline_message *m)
{
    double ready = NAN, begun = NAN, posted = NAN, arrived = NAN;

    for (int64_t k = number; n > 0 && k < w->numbers; k += step, n--) {
        const struct ends *e = &w->ends[k];

        if (e->send) {
            ready = fmax(ready, ms(e->send->ready_us));
            begun = fmax(begun, ms(e->send->begun_us));
        }
        if (e->recv) {
            posted = fmax(posted, ms(e->recv->begun_us));
            arrived = fmax(arrived, ms(e->recv->ended_us));
        }
    }
    if (isnan(arrived))
        return; /* inside a process */
    m->arrived = arrived;
    m->ready = fmin(isnan(ready) ? m->ready : ready, arrived);
    m->begun = m->sent = fmin(isnan(begun) ? m->ready : begun, arrived);
    m->posted = fmin(isnan(posted) ? m->ready : posted, arrived);
}

static struct sp_timeline_message new_message(const struct walk *w, const struct sp_action *a,
                                              int from, int to)
{
    struct sp_timeline_message m = {
        .kind = a->kind, .bytes = a->bytes, .from = from, .to = to, .writer = -1, .reader = -1};

    sp_tensor_print(w->terms->plan, &a->tensor, m.tensor);
    m.ready = m.posted = m.begun = m.sent = m.arrived = w->now[from];
    return m;
}

static void add(struct walk *w, const struct sp_timeline_message *m)
{
    w->err = w->err ? w->err : sp_timeline_add_message(w->t, m);
}

/* Messages of which the tensor of an action consists. */
static int pieces_of(const struct walk *w, const struct sp_action *a)
{
    return sp_tensor_pieces(w->terms->plan, w->terms->shape, &a->tensor);
}

static void send(struct walk *w, const struct sp_action *a)
{
    struct sp_timeline_message m = new_message(w, a, a->stage, a->peer);

    m.writer = op_of(w, a->stage, a->index);
    if (m.writer >= 0)
        m.ready = m.posted = m.begun = m.sent = m.arrived = w->t->op[m.writer].out;
    take_times(w, a->number, pieces_of(w, a), 1, &m);
    add(w, &m);
    if (!w->err && a->number < w->numbers)
        w->message[a->number] = w->t->n_messages - 1;
}

static void receive(struct walk *w, const struct sp_action *a)
{
    struct sp_timeline_message *m;

    if (w->err || a->number < 0 || a->number >= w->numbers || w->message[a->number] < 0)
        return;
    m = &w->t->message[w->message[a->number]];
    m->reader = op_of(w, a->stage, a->index);
}

/* Adds a stage's part in a collective: a message for each other member. */
static void collective(struct walk *w, const struct sp_action *a)
{
    for (int k = 0; k < a->members; k++) {
        bool gathers = a->kind == SP_ACTION_GATHER;
        struct sp_timeline_message m;

        if (a->member[k] == a->stage)
            continue;
        m = new_message(w, a, gathers ? a->member[k] : a->stage, gathers ? a->stage : a->member[k]);
        m.bytes = a->bytes / (a->members - 1);
        if (gathers)
            m.reader = op_of(w, a->stage, a->index);
        else if (a->kind == SP_ACTION_SCATTER)
            m.writer = op_of(w, a->stage, a->index);
        if (a->kind == SP_ACTION_REDUCE)
            take_times(w, a->number + (a->member[0] == a->stage ? 0 : 1), 1, 1, &m);
        else
            take_times(w, a->number + a->member[k], pieces_of(w, a), a->members, &m);
        add(w, &m);
    }
}

/* ---- evictions ------------------------------------------------------------------------------- */

static void move(struct walk *w, const struct sp_action *a)
{
    const struct sp_stage_report *r = &w->report->stages[a->stage];
    const struct sp_eviction *e = a->eviction;
    struct sp_timeline_message m = new_message(w, a, a->stage, a->stage);
    int reader = a->kind == SP_ACTION_EVICT ? e->gone.index : e->used.index;
    double at = ms(a->kind == SP_ACTION_EVICT ? r->left_at_us[e->unit] : r->back_at_us[e->unit]);

    m.reader = op_of(w, a->stage, reader);
    if (a->kind == SP_ACTION_EVICT) {
        m.writer = op_of(w, a->stage, a->index);
        m.ready = m.posted = m.begun = w->t->op[m.writer].end;
        m.arrived = fmax(isnan(at) ? m.ready : at, m.ready);
        m.sent = fmin(m.arrived, fmax(m.ready, w->left_free[a->stage]));
        w->left_free[a->stage] = m.arrived;
    } else {
        m.ready = m.posted = m.begun = m.sent = isnan(at) ? m.ready : at;
        m.arrived = m.ready;
        if (m.reader >= 0)
            m.arrived = fmax(m.ready, w->t->op[m.reader].start);
    }
    add(w, &m);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void follow(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;

    if (a->during) /* it runs while its op computes */
        return;
    switch (a->kind) {
    case SP_ACTION_RUN:
        if (a->index >= 0)
            w->now[a->stage] =
                fmax(w->now[a->stage], w->t->op[w->t->first_op[a->stage] + a->index].end);
        break;
    case SP_ACTION_SEND:
        send(w, a);
        break;
    case SP_ACTION_RECV:
        receive(w, a);
        break;
    case SP_ACTION_GATHER:
    case SP_ACTION_SCATTER:
    case SP_ACTION_REDUCE:
        collective(w, a);
        break;
    case SP_ACTION_EVICT:
    case SP_ACTION_FETCH:
        if (a->eviction->unit >= 0) /* streamed keys have no unit */
            move(w, a);
        break;
    default:
        break;
    }
}

/* Finds the highest number of a SEND, so that messages inside a process have numbers too. */
static void see_number(void *arg, const struct sp_action *a)
{
    int *most = arg;

    if (a->kind == SP_ACTION_SEND && a->number >= *most)
        *most = (int)a->number + 1;
}

/* The processes with the pipeline's stages: others of the run are members of a stage, or belong to
 * other pipelines. */
static int processes_of_pipeline(const struct sp_timeline *t)
{
    int n = 1;

    for (int s = 1; s < t->stages; s++)
        n += t->stage[s].rank != t->stage[s - 1].rank;
    return n;
}

static int add_messages(struct walk *w)
{
    struct sp_lowering l = {0};
    int stages = w->t->stages;
    int err = sp_lowering_create(w->terms->plan, w->terms->shape, processes_of_pipeline(w->t), &l);

    pair_ends(w);
    err = err ? err : sp_lower_step(&l, see_number, &w->numbers);
    w->ends = calloc((size_t)w->numbers + 1, sizeof *w->ends);
    w->message = malloc(((size_t)w->numbers + 1) * sizeof *w->message);
    w->now = calloc(2 * (size_t)stages, sizeof *w->now);
    if (!w->ends || !w->message || !w->now)
        err = -ENOMEM;
    if (!err) {
        w->left_free = w->now + stages;
        for (int i = 0; i < w->numbers; i++)
            w->message[i] = -1;
        pair_ends(w);
        err = sp_lower_step(&l, follow, w);
        err = err ? err : w->err;
    }
    if (l.messages)
        sp_lowering_destroy(&l);
    free(w->ends);
    free(w->message);
    free(w->now);
    return err;
}

static void add_ops(const struct sp_step_report *r, struct sp_timeline *t)
{
    for (int i = 0; i < t->n_ops; i++) {
        struct sp_timeline_op *op = &t->op[i];
        const struct sp_op_record *from = &r->stages[op->stage].ops[op->index];

        op->start = from->start_us / 1e3;
        op->end = from->end_us / 1e3;
        op->busy = from->busy_us / 1e3;
        op->core_wait = from->core_wait_us / 1e3;
        op->stall = from->stall_us / 1e3;
        op->late = from->late_us / 1e3;
        op->exchange = from->exchange_us / 1e3;
        op->out = from->out_us > 0 ? from->out_us / 1e3 : op->end;
        op->submitted = ms(from->submitted_us);
        op->ready = ms(from->ready_us);
        op->arrived = ms(from->arrived_us);
    }
}

/* The first of the consecutive stages that share a worker with stage s. */
static int lane_of(const struct sp_step_report *r, const struct sp_timeline *t, int s)
{
    while (s > 0 && t->stage[s - 1].rank == t->stage[s].rank &&
           r->stages[s - 1].worker == r->stages[s].worker)
        s--;
    return s;
}

static void add_stages(const struct sp_step_report *r, struct sp_timeline *t)
{
    for (int s = 0; s < t->stages; s++) {
        const struct sp_stage_report *from = &r->stages[s];
        struct sp_timeline_stage *st = &t->stage[s];

        st->lane = lane_of(r, t, s);
        st->busy = from->busy_us / 1e3;
        st->idle = from->idle_us / 1e3;
        st->core_wait = from->core_wait_us / 1e3;
        st->comm_wait = from->comm_wait_us / 1e3;
        st->update = from->update_us / 1e3;
        st->stall = from->stall_us / 1e3;
        st->bubble = from->bubble_ratio;
        st->bytes_sent = (int64_t)from->bytes_sent;
        st->peak_bytes = (int64_t)from->peak_bytes;
        st->left = (int64_t)from->left_bytes;
        st->returned = (int64_t)from->returned_bytes;
        t->bubble += from->bubble_ratio / t->stages;
    }
}

int sp_timeline_of_report(const struct sp_timeline_terms *terms,
                          const struct sp_step_report *report, struct sp_timeline *t)
{
    struct walk w = {.terms = terms, .report = report, .t = t};
    int err = sp_timeline_of_plan(terms, t);

    if (err)
        return err;
    snprintf(t->unit, sizeof t->unit, "ms");
    t->span = report->span_us / 1e3;
    t->length = fmax(report->step_us / 1e3, t->span);
    add_ops(report, t);
    add_stages(report, t);
    err = add_messages(&w);
    err = err ? err : sp_timeline_queue(t);
    err = err ? err : sp_timeline_finish(t);
    if (err)
        sp_timeline_destroy(t);
    return err;
}
