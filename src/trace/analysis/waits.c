#include "trace/analysis/waits.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Messages by their reader, for the search. */
struct inbox {
    int *first; /* [ops] -1: none */
    int *next;  /* [messages] */
};

/* ---- units ----------------------------------------------------------------------------------- */

static void add_unit(const struct sp_timeline *t, int op, struct sp_waits *w)
{
    struct sp_unit_of_step *u = &w->unit[w->n];
    bool pair = t->op[op].op.overlap && op + 1 < t->first_op[t->op[op].stage + 1];

    *u = (struct sp_unit_of_step){.op = op,
                                  .ops = pair ? 2 : 1,
                                  .start = t->op[op].start,
                                  .end = t->op[op].end,
                                  .producer = -1,
                                  .message = -1};
    for (int i = op; i < op + u->ops; i++) {
        u->start = fmin(u->start, t->op[i].start);
        u->end = fmax(u->end, t->op[i].end);
        u->compute += t->op[i].busy - t->op[i].core_wait;
        u->core += t->op[i].core_wait;
    }
    w->n++;
}

static int compare(const void *x, const void *y)
{
    const struct sp_unit_of_step *a = x, *b = y;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->op - b->op;
}

static void add_units(const struct sp_timeline *t, struct sp_waits *w)
{
    for (int s = 0; s < t->stages; s++) {
        int first = w->n;

        w->first_unit[s] = first;
        for (int i = t->first_op[s]; i < t->first_op[s + 1]; i += w->unit[w->n - 1].ops)
            add_unit(t, i, w);
        qsort(&w->unit[first], (size_t)(w->n - first), sizeof *w->unit, compare);
    }
    w->first_unit[t->stages] = w->n;
    for (int k = 0; k < w->n; k++)
        for (int i = 0; i < w->unit[k].ops; i++)
            w->of_op[w->unit[k].op + i] = k;
}

/* ---- waits of a unit ------------------------------------------------------------------------- */

/* When the last producer of a unit had written its output; *apart: the last one of another
 * process. */
static double last_producer(const struct sp_waits *w, struct sp_unit_of_step *u, double *apart)
{
    const struct sp_timeline *t = w->t;
    double last = -INFINITY;

    *apart = -INFINITY;
    for (int i = u->op; i < u->op + u->ops; i++)
        for (int d = t->op[i].first_dep; d < t->op[i].first_dep + t->op[i].deps; d++) {
            const struct sp_timeline_op *from = &t->op[t->dep[d].op];
            double at = t->dep[d].beside ? from->start : from->out;

            if (t->dep[d].op >= u->op && t->dep[d].op < u->op + u->ops)
                continue;
            if (t->stage[from->stage].rank != t->stage[t->op[i].stage].rank)
                *apart = fmax(*apart, at);
            if (at > last) {
                last = at;
                u->producer = t->dep[d].op;
            }
        }
    return last;
}

/* Finds its last message from another process. */
static void find_message(const struct sp_waits *w, const struct inbox *in,
                         struct sp_unit_of_step *u)
{
    const struct sp_timeline *t = w->t;

    for (int i = u->op; i < u->op + u->ops; i++)
        for (int m = in->first[i]; m >= 0; m = in->next[m]) {
            if (!sp_timeline_crosses(t, &t->message[m]))
                continue;
            if (u->message < 0 || t->message[m].arrived > t->message[u->message].arrived)
                u->message = m;
        }
}

/* Something that a message waits for before it is in transit, and until when; in order of time. */
struct stop {
    double until;
    enum sp_part_of_step part;
};
enum { STOPS = 3 };

static void list_stops(const struct sp_timeline_message *m, struct stop stops[STOPS])
{
    int at = 0;

    stops[0] = (struct stop){m->begun, SP_STEP_ENGINE};
    stops[1] = (struct stop){m->sent, SP_STEP_INTERFACE};
    while (at < STOPS - 1 && stops[at].until < m->posted)
        at++;
    for (int i = STOPS - 1; i > at; i--)
        stops[i] = stops[i - 1];
    stops[at] = (struct stop){m->posted, SP_STEP_SUBMISSION};
}

/* Splits the time that input from other processes took after `apart`, when its producers had
 * written it. */
static void split_delay(const struct sp_waits *w, double apart, struct sp_unit_of_step *u)
{
    const struct sp_timeline_message *m = &w->t->message[u->message];
    double at = apart;
    struct stop stops[STOPS];

    u->apart = isfinite(apart);
    if (!u->apart)
        at = m->writer >= 0 ? w->t->op[m->writer].out : m->ready;
    if (m->ready > at) { /* from its writer to the transport */
        u->delay[SP_STEP_MESSAGE] += fmin(m->ready, m->arrived) - at;
        at = fmin(m->ready, m->arrived);
    }
    list_stops(m, stops);
    for (int i = 0; i < STOPS; i++) {
        double until = fmin(m->arrived, stops[i].until);

        if (until > at) {
            u->delay[stops[i].part] += until - at;
            at = until;
        }
    }
    u->delay[SP_STEP_MESSAGE] += fmax(0, m->arrived - at);
}

/* Attributes the time from *at until `until`, as long as the unit had not started, to `part`. */
static void pass(struct sp_unit_of_step *u, double *at, double until, enum sp_part_of_step part)
{
    until = fmin(until, u->start);
    if (until > *at) {
        u->before[part] += until - *at;
        *at = until;
    }
}

/* The wait for evictions and fetches; the ops of a unit wait in turn. */
static double stall_of(const struct sp_timeline *t, const struct sp_unit_of_step *u)
{
    double stall = 0;

    for (int i = u->op; i < u->op + u->ops; i++)
        stall += t->op[i].stall;
    return stall;
}

/* Splits the time between the stage's op before and the start. `lane`: when other stages left the
 * worker. */
static double split_before(const struct sp_waits *w, double covered, double lane,
                           struct sp_unit_of_step *u)
{
    const struct sp_timeline *t = w->t;
    double apart, upstream = last_producer(w, u, &apart), at = covered, stall = stall_of(t, u);
    double submitted = t->op[u->op].submitted;

    if (u->message >= 0) {
        const struct sp_timeline_message *m = &t->message[u->message];
        struct stop stops[STOPS];

        split_delay(w, apart, u);
        pass(u, &at, fmax(upstream, fmin(m->ready, m->arrived)), SP_STEP_UPSTREAM);
        list_stops(m, stops);
        for (int i = 0; i < STOPS; i++)
            pass(u, &at, stops[i].until, stops[i].part);
        pass(u, &at, m->arrived, SP_STEP_MESSAGE);
    }
    pass(u, &at, upstream, SP_STEP_UPSTREAM);
    pass(u, &at, lane, SP_STEP_CORE);
    u->late = -u->before[SP_STEP_SUBMISSION];
    if (!isnan(submitted))
        pass(u, &at, submitted, SP_STEP_SUBMISSION);
    u->late += u->before[SP_STEP_SUBMISSION];
    pass(u, &at, at + stall, SP_STEP_OFFLOAD);
    u->held = -u->before[SP_STEP_ENGINE];
    pass(u, &at, u->start, SP_STEP_ENGINE);
    u->held += u->before[SP_STEP_ENGINE];
    return stall - u->before[SP_STEP_OFFLOAD];
}

int sp_waits_last_before(const struct sp_waits *w, int stage, double start)
{
    int low = w->first_unit[stage], high = w->first_unit[stage + 1];

    while (low < high) {
        int middle = (low + high) / 2;

        if (w->unit[middle].start < start)
            low = middle + 1;
        else
            high = middle;
    }
    return low > w->first_unit[stage] ? low - 1 : -1;
}

/* Time that other stages on the worker ran tasks between a unit's start and end, because tasks
 * overtake each other. */
static double others_inside(const struct sp_waits *w, const struct sp_unit_of_step *u)
{
    const struct sp_timeline *t = w->t;
    int stage = t->op[u->op].stage;
    double sum = 0;

    for (int s = t->stage[stage].lane; s < t->stages; s++) {
        if (s == stage || t->stage[s].lane != t->stage[stage].lane)
            continue;
        for (int k = sp_waits_last_before(w, s, u->end); k >= w->first_unit[s]; k--) {
            const struct sp_unit_of_step *o = &w->unit[k];
            double both = fmin(o->end, u->end) - fmax(o->start, u->start);

            if (both <= 0)
                break;
            sum += both * fmin(1, (o->compute + o->core) / (o->end - o->start));
        }
    }
    return sum;
}

/* Attributes up to `time` of the time in no task that is left to `part`. */
static void take_idle(struct sp_unit_of_step *u, double *idle, double time,
                      enum sp_part_of_step part)
{
    u->inside[part] = fmax(0, fmin(time, *idle));
    *idle -= u->inside[part];
}

/* Splits the time in no task; `length`: of the unit, as far as no other unit covers it. */
static void split_inside(const struct sp_waits *w, double length, double stall,
                         struct sp_unit_of_step *u)
{
    double idle = length - u->compute - u->core, arrived = -INFINITY, late = 0, exchange = 0;

    for (int i = u->op; i < u->op + u->ops; i++) {
        arrived = fmax(arrived, w->t->op[i].arrived);
        late += w->t->op[i].late;
        exchange += w->t->op[i].exchange;
    }
    take_idle(u, &idle, others_inside(w, u), SP_STEP_CORE);
    take_idle(u, &idle, stall, SP_STEP_OFFLOAD);
    take_idle(u, &idle, late, SP_STEP_SUBMISSION);
    take_idle(u, &idle, fmax(arrived - u->start, exchange), SP_STEP_MESSAGE);
    u->inside[SP_STEP_ENGINE] = idle;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* When other stages on the same worker last used it before `start`. */
static double lane_free(const struct sp_waits *w, int stage, double start)
{
    const struct sp_timeline *t = w->t;
    double last = -INFINITY;

    for (int s = t->stage[stage].lane; s < t->stages; s++) {
        int k = -1;

        if (s != stage && t->stage[s].lane == t->stage[stage].lane)
            k = sp_waits_last_before(w, s, start);
        if (k >= 0)
            last = fmax(last, w->unit[k].end);
    }
    return last;
}

static void split_stage(struct sp_waits *w, const struct inbox *in, int s)
{
    const struct sp_timeline *t = w->t;
    double *sum = w->stage[s], covered = 0, between = t->length - t->span;

    for (int k = w->first_unit[s]; k < w->first_unit[s + 1]; k++) {
        struct sp_unit_of_step *u = &w->unit[k];
        double length = fmax(u->end, covered) - fmax(u->start, covered), stall;

        find_message(w, in, u);
        stall = split_before(w, covered, lane_free(w, s, u->start), u);
        split_inside(w, length, stall, u);
        covered = fmax(covered, u->end);
        sum[SP_STEP_COMPUTE] += u->compute;
        sum[SP_STEP_CORE] += u->core;
        for (int i = 0; i < SP_STEP_PARTS; i++)
            sum[i] += u->before[i] + u->inside[i];
    }
    sum[SP_STEP_UPDATE] += fmin(t->stage[s].update, between);
    sum[SP_STEP_BARRIER] += t->span - covered + fmax(0, between - t->stage[s].update);
}

static int create_inbox(const struct sp_timeline *t, struct inbox *in)
{
    in->first = malloc(((size_t)t->n_ops + 1) * sizeof *in->first);
    in->next = malloc(((size_t)t->n_messages + 1) * sizeof *in->next);
    if (!in->first || !in->next)
        return -ENOMEM;
    for (int i = 0; i < t->n_ops; i++)
        in->first[i] = -1;
    for (int i = 0; i < t->n_messages; i++) {
        int reader = t->message[i].reader;

        if (reader < 0)
            continue;
        in->next[i] = in->first[reader];
        in->first[reader] = i;
    }
    return 0;
}

int sp_waits_create(const struct sp_timeline *t, struct sp_waits *w)
{
    struct inbox in = {0};
    int err = create_inbox(t, &in);

    *w = (struct sp_waits){.t = t,
                           .unit = calloc((size_t)t->n_ops + 1, sizeof *w->unit),
                           .of_op = calloc((size_t)t->n_ops + 1, sizeof *w->of_op),
                           .first_unit = calloc((size_t)t->stages + 1, sizeof *w->first_unit),
                           .stage = calloc((size_t)t->stages, sizeof *w->stage)};
    if (err || !w->unit || !w->of_op || !w->first_unit || !w->stage) {
        err = -ENOMEM;
    } else {
        add_units(t, w);
        for (int s = 0; s < t->stages; s++)
            split_stage(w, &in, s);
    }
    free(in.first);
    free(in.next);
    if (err)
        sp_waits_destroy(w);
    return err;
}

void sp_waits_destroy(struct sp_waits *w)
{
    free(w->unit);
    free(w->of_op);
    free(w->first_unit);
    free(w->stage);
    *w = (struct sp_waits){0};
}

/* ---- words ----------------------------------------------------------------------------------- */

static const struct {
    const char *name, *words;
} parts[] = {
    [SP_STEP_COMPUTE] = {"compute", "computing"},
    [SP_STEP_UPSTREAM] = {"upstream", "an op of another stage"},
    [SP_STEP_MESSAGE] = {"message", "a message on its way"},
    [SP_STEP_INTERFACE] = {"interface", "an interface that another message had"},
    [SP_STEP_OFFLOAD] = {"offload", "tensors that left memory or came back"},
    [SP_STEP_SUBMISSION] = {"submission", "its submission"},
    [SP_STEP_CORE] = {"core", "a core that others had"},
    [SP_STEP_ENGINE] = {"engine", "the runtime"},
    [SP_STEP_BARRIER] = {"barrier", "the end of the step"},
    [SP_STEP_UPDATE] = {"update", "norm and optimizer"},
};

const char *sp_part_of_step_name(enum sp_part_of_step part)
{
    return parts[part].name;
}

const char *sp_part_of_step_words(enum sp_part_of_step part)
{
    return parts[part].words;
}
