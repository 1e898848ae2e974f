#include "policies/search/list_schedule.h"
#include "policies/families/map.h"
#include "policies/simulation/costs.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An op not yet run, in the list of its stage. */
struct item {
    struct sp_op op;
    int next;            /* of the list, -1: last */
    int missing;         /* ops it waits for that have not begun */
    double ready;        /* when the results of those that have begun are there */
    double due;          /* when it began in the order given */
    int channel, number; /* the channel of its message, and its turn there; -1: it waits for none */
};

struct sp_list_schedule {
    const struct sp_layout *lay;
    const struct sp_costs *costs;
    int p, m, globals;
    bool split;
    double epsilon;
    int *first; /* [p+1] first op of a stage */
    int *at;    /* [SP_R][m][globals] item of an op */

    /* State of a replay. In reverse, the op that releases an activation takes it instead. */
    bool reverse;
    int take, release; /* passes */
    const int *limit;
    struct item *items;  /* stage after stage */
    int *head, *live;    /* [p] */
    int *ran;            /* [p] ops run */
    int *sent, *taken;   /* [2][globals] messages of a channel */
    double *idle, *from; /* [p] when a stage is free, when it began */
    double *wake;        /* [p] before this time a stage need not look again */
};

struct sp_list_schedule *sp_list_schedule_create(const struct sp_layout *lay,
                                                 const struct sp_program *programs)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    struct sp_list_schedule *r = calloc(1, sizeof *r);
    size_t p = (size_t)lay->stages, ops = 0;

    if (!r)
        return NULL;
    r->lay = lay;
    r->costs = lay->costs ? lay->costs : &unit;
    r->p = lay->stages;
    r->m = lay->micro_batches;
    r->globals = sp_globals(lay);
    r->epsilon = 1e-9 * (r->costs->f + r->costs->b + r->costs->w);
    for (size_t s = 0; s < p; s++)
        ops += (size_t)programs[s].n;
    r->first = calloc(p + 1, sizeof *r->first);
    r->at = calloc((size_t)SP_R * (size_t)r->m * (size_t)r->globals, sizeof *r->at);
    r->items = calloc(ops + 1, sizeof *r->items);
    r->head = calloc(3 * p + 4 * (size_t)r->globals, sizeof *r->head);
    r->idle = calloc(3 * p, sizeof *r->idle);
    if (!r->first || !r->at || !r->items || !r->head || !r->idle) {
        sp_list_schedule_destroy(r);
        return NULL;
    }
    r->live = r->head + p;
    r->ran = r->live + p;
    r->sent = r->ran + p;
    r->taken = r->sent + 2 * r->globals;
    r->from = r->idle + p;
    r->wake = r->from + p;
    for (size_t s = 0; s < p; s++) {
        r->first[s + 1] = r->first[s] + programs[s].n;
        for (int k = 0; k < programs[s].n; k++)
            r->split |= programs[s].ops[k].pass == SP_W;
    }
    return r;
}

void sp_list_schedule_destroy(struct sp_list_schedule *r)
{
    if (!r)
        return;
    free(r->first);
    free(r->at);
    free(r->items);
    free(r->head);
    free(r->idle);
    free(r);
}

int sp_list_result_create(const struct sp_list_schedule *r, struct sp_list_result *result)
{
    *result = (struct sp_list_result){
        .peak = calloc((size_t)r->p, sizeof *result->peak),
        .ops = calloc((size_t)r->first[r->p] + 1, sizeof *result->ops),
        .start = calloc((size_t)r->first[r->p] + 1, sizeof *result->start),
    };
    if (result->peak && result->ops && result->start)
        return 0;
    sp_list_result_destroy(result);
    return -ENOMEM;
}

void sp_list_result_destroy(struct sp_list_result *result)
{
    free(result->peak);
    free(result->ops);
    free(result->start);
    *result = (struct sp_list_result){0};
}

void sp_list_result_copy(const struct sp_list_schedule *r, const struct sp_list_result *from,
                         struct sp_list_result *to)
{
    struct sp_list_result kept = *to;

    *to = *from;
    to->peak = kept.peak;
    to->ops = kept.ops;
    to->start = kept.start;
    memcpy(to->peak, from->peak, (size_t)r->p * sizeof *to->peak);
    memcpy(to->ops, from->ops, (size_t)r->first[r->p] * sizeof *to->ops);
    memcpy(to->start, from->start, (size_t)r->first[r->p] * sizeof *to->start);
}

int sp_list_schedule_first(const struct sp_list_schedule *r, int stage)
{
    return r->first[stage];
}

double sp_list_schedule_epsilon(const struct sp_list_schedule *r)
{
    return r->epsilon;
}

static int *place(const struct sp_list_schedule *r, int pass, int mb, int g)
{
    return &r->at[((size_t)pass * (size_t)r->m + (size_t)mb) * (size_t)r->globals + (size_t)g];
}

/* Like sp_op_cost, without a plan. */
static double cost_of(const struct sp_list_schedule *r, int stage, const struct sp_op *op)
{
    const struct sp_costs *c = r->costs;
    int g = sp_global_stage(r->lay, stage, op->chunk);
    double b = c->b * (c->scale_b ? c->scale_b[g] : 1);
    double w = c->w * (c->scale_w ? c->scale_w[g] : c->scale_b ? c->scale_b[g] : 1);
    double part = (double)r->p / r->globals;

    if (op->pass == SP_F)
        return c->f * (c->scale_f ? c->scale_f[g] : 1) * part;
    return (op->pass == SP_W ? w : r->split ? b : b + w) * part;
}

/* The number of ops that an op on global stage g waits for. */
static int waits_for(const struct sp_list_schedule *r, int pass, int g)
{
    int last = r->globals - 1;

    if (pass == SP_F)
        return r->reverse ? 1 + (g < last) : g > 0;
    if (pass == SP_B)
        return r->reverse ? r->split + (g > 0) : 1 + (g < last);
    return !r->reverse;
}

/* Fills in the lists for a replay, with no op run yet. */
static void reset(struct sp_list_schedule *r, const struct sp_list_result *from)
{
    for (int s = 0; s < r->p; s++) {
        int first = r->first[s], end = r->first[s + 1];

        for (int i = first; i < end; i++) {
            int k = r->reverse ? first + end - 1 - i : i;
            struct sp_op op = from->ops[k];
            double begun = from->start[k], ended = begun + cost_of(r, s, &op);
            int g = sp_global_stage(r->lay, s, op.chunk);

            r->items[i] = (struct item){.op = op,
                                        .next = i + 1 < end ? i + 1 : -1,
                                        .missing = waits_for(r, op.pass, g),
                                        .due = r->reverse ? from->makespan - ended : begun,
                                        .channel = -1};
            *place(r, op.pass, op.mb, g) = i;
        }
        r->head[s] = first < end ? first : -1;
        r->live[s] = r->ran[s] = 0;
        r->idle[s] = r->from[s] = r->wake[s] = 0;
    }
    memset(r->sent, 0, 4 * (size_t)r->globals * sizeof *r->sent); /* and taken */
}

/* The channel of messages of a pass from global stage g to h: that of the first chunk, of h's stage, which gets
 * any from g's. */
static int channel_of(const struct sp_list_schedule *r, int pass, int g, int h)
{
    int src = sp_chunk_owner(r->lay, 0, g).stage, dst = sp_chunk_owner(r->lay, 0, h).stage;
    int v = r->lay->chunks, c = 0;

    for (; c < v - 1; c++) {
        int from = sp_global_stage(r->lay, dst, c) + g - h;

        if (from >= 0 && from < r->globals && sp_chunk_owner(r->lay, 0, from).stage == src)
            break;
    }
    return (pass == SP_F) * r->globals + dst * v + c;
}

/* Tells the op of a pass on global stage h when the result of one on g will be there. */
static void deliver(struct sp_list_schedule *r, int g, int pass, int mb, int h, double end)
{
    int src, dst;
    struct item *it;

    if (h < 0 || h >= r->globals || (pass == SP_W && !r->split))
        return;
    it = &r->items[*place(r, pass, mb, h)];
    src = sp_chunk_owner(r->lay, 0, g).stage;
    dst = sp_chunk_owner(r->lay, 0, h).stage;
    if (src != dst) {
        it->channel = channel_of(r, pass, g, h);
        it->number = r->sent[it->channel]++;
        end += r->costs->comm;
    }
    it->missing--;
    if (end > it->ready)
        it->ready = end;
    if (it->missing == 0 && it->ready < r->wake[dst])
        r->wake[dst] = it->ready;
}

/* Runs an op at `time`. */
static void begin(struct sp_list_schedule *r, int stage, const struct item *it, double time)
{
    const struct sp_op *op = &it->op;
    int g = sp_global_stage(r->lay, stage, op->chunk), mb = op->mb;
    int ahead = (op->pass == SP_F) != r->reverse ? g + 1 : g - 1; /* the next on its way */
    double end = time + cost_of(r, stage, op);

    r->idle[stage] = end;
    if (it->channel >= 0)
        r->taken[it->channel]++;
    if (op->pass != SP_W)
        deliver(r, g, op->pass, mb, ahead, end);
    if (r->reverse && op->pass != SP_F)
        deliver(r, g, op->pass == SP_W ? SP_B : SP_F, mb, g, end);
    else if (!r->reverse && op->pass != SP_W)
        deliver(r, g, op->pass == SP_F ? SP_B : SP_W, mb, g, end);
    r->live[stage] += op->pass == r->take;
    r->live[stage] -= op->pass == r->release;
    r->wake[stage] = end;
}

/* Returns true if all inputs of an op are there by `time` and its message is next in its
 * channel. */
static bool is_ready(const struct sp_list_schedule *r, const struct item *it, double time)
{
    return it->missing == 0 && it->ready <= time + r->epsilon &&
           (it->channel < 0 || it->number == r->taken[it->channel]);
}

/*
 * Chooses the item that a stage runs at `time`, and gives the one before it in the list; false:
 * none, and wake[stage] becomes the time when there may be one. An op that takes an activation and
 * runs before its place in the list adds one to the activations held during the ops in between, so
 * it may run only if none of those then exceeds the limit. Other ops may always run earlier. The
 * micro-batches of a pass and chunk keep their order, so only the first of each is considered.
 */
static bool choose(struct sp_list_schedule *r, const struct sp_list_rule *rule, int stage,
                   double time, int *item, int *before)
{
    int live = r->live[stage], peak = live, best = SP_R, prev = -1;
    int left = 8 * r->p * r->lay->chunks + 32; /* how many items it looks at, to bound the time */
    unsigned long long passed[SP_R] = {0};     /* chunks, modulo 64, of the ops looked at */
    int kinds = (r->split ? 3 : 2) * (r->lay->chunks < 64 ? r->lay->chunks : 64); /* not seen yet */
    const struct item *first = &r->items[r->head[stage]];
    double awaited = -1, next = HUGE_VAL; /* when the first F or B of the list, or any, is ready */

    for (int i = r->head[stage]; i >= 0 && best > 0 && left > 0 && kinds > 0;
         i = r->items[i].next, left--) {
        const struct item *it = &r->items[i];
        int pass = it->op.pass;
        unsigned long long chunk = 1ULL << (it->op.chunk & 63);

        if (prev >= 0 && rule->reach == SP_LIST_STRICT)
            break;
        if (!(passed[pass] & chunk) && rule->rank[pass] < best && is_ready(r, it, time) &&
            (prev < 0 || rule->reach == SP_LIST_ANY ||
             time + cost_of(r, stage, &it->op) <= first->due + r->epsilon) &&
            (pass != r->take || peak < r->limit[stage])) {
            *item = i;
            *before = prev;
            best = rule->rank[pass];
        }
        if (it->missing == 0 && it->ready > time + r->epsilon) {
            if (awaited < 0 && pass != SP_W)
                awaited = it->ready;
            if (it->ready < next)
                next = it->ready;
        }
        kinds -= !(passed[pass] & chunk);
        passed[pass] |= chunk;
        live += pass == r->take;
        live -= pass == r->release;
        if (live > peak)
            peak = live;
        prev = i;
    }
    if (best < SP_R && (!rule->wait || awaited < 0 || r->items[*item].op.pass != SP_W ||
                        awaited >= time + cost_of(r, stage, &r->items[*item].op) - r->epsilon))
        return true;
    r->wake[stage] = next;
    return false;
}

/* Lets a stage run an op at `time` if it can. Returns true if it ran one. */
static bool step(struct sp_list_schedule *r, const struct sp_list_rule *rule, int stage,
                 double time, struct sp_list_result *out)
{
    int item, before, nth = r->ran[stage];

    if (r->head[stage] < 0 || r->idle[stage] > time + r->epsilon ||
        r->wake[stage] > time + r->epsilon || !choose(r, rule, stage, time, &item, &before))
        return false;
    if (before < 0)
        r->head[stage] = r->items[item].next;
    else
        r->items[before].next = r->items[item].next;
    if (r->ran[stage]++ == 0)
        r->from[stage] = time;
    begin(r, stage, &r->items[item], time);
    nth = r->reverse ? r->first[stage + 1] - 1 - nth : r->first[stage] + nth;
    out->ops[nth] = r->items[item].op;
    out->start[nth] = r->reverse ? -r->idle[stage] : time;
    if (r->live[stage] > out->peak[stage])
        out->peak[stage] = r->live[stage];
    return true;
}

/* The first time at which a stage may run an op; HUGE_VAL: none has any that could. */
static double next_time(const struct sp_list_schedule *r)
{
    double first = HUGE_VAL;

    for (int s = 0; s < r->p; s++)
        if (r->head[s] >= 0)
            first = fmin(first, fmax(r->idle[s], r->wake[s]));
    return first;
}

bool sp_list_schedule_run(struct sp_list_schedule *r, const struct sp_list_rule *rule, bool reverse,
                          const int *limit, const struct sp_list_result *from,
                          struct sp_list_result *out)
{
    int done = 0;

    r->reverse = reverse;
    r->limit = limit;
    r->take = !reverse ? SP_F : r->split ? SP_W : SP_B;
    r->release = reverse ? SP_F : r->split ? SP_W : SP_B;
    reset(r, from);
    out->makespan = out->spans = 0;
    out->peaks = 0;
    memset(out->peak, 0, (size_t)r->p * sizeof *out->peak);
    for (double time = 0; time < HUGE_VAL; time = next_time(r))
        for (int s = 0; s < r->p; s++)
            done += step(r, rule, s, time, out);
    for (int s = 0; s < r->p; s++) {
        out->spans += r->idle[s] - r->from[s];
        out->peaks += out->peak[s];
        if (r->idle[s] > out->makespan)
            out->makespan = r->idle[s];
    }
    for (int i = 0; reverse && i < r->first[r->p]; i++)
        out->start[i] += out->makespan;
    return done == r->first[r->p];
}
