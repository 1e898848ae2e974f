/*
 * An independent and simple check whether a set of programs is legal, against which tests compare
 * the verifier and the list simulation. It uses tables, and rounds over all stages until nothing
 * moves; it calls nothing of src/policies but the schedule's own placement. Layerwise, subsequence
 * and bidirectional families.
 */
#ifndef SP_TESTS_ORACLE_H
#define SP_TESTS_ORACLE_H

#include "policies/common.h"

/* Bits for the errors of a program. */
enum {
    WRONG_FOREIGN = 1,    /* an op that no schedule has */
    WRONG_TWICE = 2,      /* an op appears twice */
    WRONG_MISSING = 4,    /* a forward or a backward does not appear */
    WRONG_EARLY = 8,      /* before an op of its stage that it waits for, or R after its B */
    WRONG_PAIR = 16,      /* overlapped ops that are not a forward and a backward */
    WRONG_STUCK = 32,     /* deadlock */
    WRONG_TURN = 64,      /* messages of a channel are taken in another order than sent */
    WRONG_PAIRSTUCK = 128 /* deadlock of overlapped pairs */
};

#define ORACLE_STAGES 16
#define ORACLE_OPS 4096 /* of a stage */

struct oracle {
    const struct sp_plan *plan;
    int p, m, v, n, globals;
    bool two_ways;
    int global[ORACLE_STAGES][8];                                 /* [stage][chunk] global stage */
    int stage[2][8 * ORACLE_STAGES], chunk[2][8 * ORACLE_STAGES]; /* [pipe][global] */
    int *index; /* [pass][mb][global][slice] place in the program of its stage, -1: none */
    /* times of the last play: */
    double start[ORACLE_STAGES][ORACLE_OPS], end[ORACLE_STAGES][ORACLE_OPS];
};

static inline int oracle_pipe(const struct oracle *o, int mb)
{
    const struct sp_plan *plan = o->plan;

    if (!o->two_ways)
        return 0;
    if (plan->def && plan->def->layerwise.pipe)
        return plan->def->layerwise.pipe(&plan->layout, mb);
    return mb >= (o->m + 1) / 2;
}

/* The place of an op in the table of ops. */
static inline int *oracle_at(const struct oracle *o, int pass, int mb, int g, int slice)
{
    return &o->index[((pass * o->m + mb) * o->globals + g) * o->n + slice];
}

static inline bool oracle_covers_family(const char *family)
{
    return !strcmp(family, "layerwise") || !strcmp(family, "subsequence") ||
           !strcmp(family, "bidirectional");
}

static inline bool oracle_covers(const struct sp_plan *plan)
{
    return oracle_covers_family(plan->family->name) && plan->family->facts.pairs;
}

static inline void oracle_create(const struct sp_plan *plan, struct oracle *o)
{
    const struct sp_layout *lay = &plan->layout;

    o->plan = plan;
    o->p = lay->stages;
    o->m = lay->micro_batches;
    o->v = lay->chunks;
    o->n = lay->slices;
    o->two_ways = !strcmp(plan->family->name, "bidirectional");
    o->globals = o->two_ways ? o->p : o->p * o->v;
    assert_true(o->p <= ORACLE_STAGES && o->v <= 8 && 4 * o->m * o->v * o->n <= ORACLE_OPS);
    for (int s = 0; s < o->p; s++) {
        for (int c = 0; c < o->v; c++) {
            int g = plan->def && plan->def->layerwise.global_stage
                        ? plan->def->layerwise.global_stage(lay, s, c)
                        : s + c * o->p;

            o->global[s][c] = g;
            o->stage[o->two_ways ? c : 0][g] = s;
            o->chunk[o->two_ways ? c : 0][g] = c;
        }
    }
    o->index = malloc(sizeof(int) * (size_t)(SP_PASSES * o->m * o->globals * o->n));
    assert_non_null(o->index);
}

static inline void oracle_destroy(struct oracle *o)
{
    free(o->index);
}

/* Lists the ops that an op waits for, as (pass, global stage, slice) of its micro-batch; returns
 * how many. */
static inline int oracle_waits(const struct oracle *o, int pass, int g, int k, int out[4][3])
{
    int n = 0;

#define WAIT(a, b, c) (out[n][0] = (a), out[n][1] = (b), out[n][2] = (c), n++)
    if (pass == SP_F && g > 0)
        WAIT(SP_F, g - 1, k);
    if (pass == SP_F && k > 0)
        WAIT(SP_F, g, k - 1);
    if (pass == SP_B && g < o->globals - 1)
        WAIT(SP_B, g + 1, k);
    if (pass == SP_B && k < o->n - 1)
        WAIT(SP_B, g, k + 1);
    if (pass == SP_B && g == o->globals - 1) /* the loss of the whole sequence */
        WAIT(SP_F, g, o->n - 1);
    if (pass == SP_B || pass == SP_R)
        WAIT(SP_F, g, k);
    if (pass == SP_W)
        WAIT(SP_B, g, k);
#undef WAIT
    return n;
}

/* Finds the place of every op; returns FOREIGN, TWICE and MISSING. */
static inline int oracle_place(struct oracle *o)
{
    int wrong = 0;

    memset(o->index, -1, sizeof(int) * (size_t)(SP_PASSES * o->m * o->globals * o->n));
    for (int s = 0; s < o->p; s++) {
        const struct sp_program *prog = &o->plan->programs[s];

        for (int k = 0; k < prog->n; k++) {
            const struct sp_op *op = &prog->ops[k];
            int *at;

            if (op->part != SP_CHUNK || op->pass >= SP_PASSES || op->mb < 0 || op->mb >= o->m ||
                op->chunk < 0 || op->chunk >= o->v || op->slice >= o->n ||
                (o->two_ways && op->chunk != oracle_pipe(o, op->mb)))
                return WRONG_FOREIGN;
            at = oracle_at(o, op->pass, op->mb, o->global[s][op->chunk], op->slice);
            if (*at >= 0)
                wrong |= WRONG_TWICE;
            else
                *at = k;
        }
    }
    for (int i = 0; i < 2 * o->m * o->globals * o->n; i++) { /* F, then B */
        if (o->index[i] < 0)
            wrong |= WRONG_MISSING;
    }
    return wrong;
}

/* Returns EARLY, PAIR and TURN. */
static inline int oracle_order(const struct oracle *o)
{
    int wrong = 0;

    for (int s = 0; s < o->p; s++) {
        const struct sp_program *prog = &o->plan->programs[s];
        int last[ORACLE_STAGES][2]; /* place in its sender of the last message taken */

        memset(last, -1, sizeof last);
        for (int k = 0; k < prog->n; k++) {
            const struct sp_op *op = &prog->ops[k];
            int g = o->global[s][op->chunk], waits[4][3], pipe = oracle_pipe(o, op->mb);
            int n = oracle_waits(o, op->pass, g, op->slice, waits);
            int b = *oracle_at(o, SP_B, op->mb, g, op->slice);

            if (op->pass == SP_R && b < k)
                wrong |= WRONG_EARLY;
            for (int i = 0; i < n; i++) {
                int src = o->stage[pipe][waits[i][1]];
                int at = *oracle_at(o, waits[i][0], op->mb, waits[i][1], waits[i][2]);

                if (src == s && at > k)
                    wrong |= WRONG_EARLY;
                if (src == s && at >= 0 && at == k - 1 && prog->ops[at].overlap)
                    wrong |= WRONG_PAIR;
                if (src != s && at < last[src][op->pass == SP_F])
                    wrong |= WRONG_TURN;
                if (src != s)
                    last[src][op->pass == SP_F] = at;
            }
            if (op->overlap &&
                (k == prog->n - 1 || op->pass != SP_F || op[1].pass != SP_B || op[1].overlap))
                wrong |= WRONG_PAIR;
        }
    }
    return wrong;
}

/* Cost of an op: its share of a whole stage's. */
static inline double oracle_cost(const struct oracle *o, const struct sp_costs *c, int s,
                                 const struct sp_op *op)
{
    double share = 1.0 / ((o->two_ways ? 1 : o->v) * o->n);
    int g = o->global[s][op->chunk];

    if (op->pass == SP_W)
        return c->w * share;
    if (op->pass == SP_B)
        return (c->b + (*oracle_at(o, SP_W, op->mb, g, op->slice) < 0 ? c->w : 0)) * share;
    return c->f * share;
}

/*
 * Plays the programs and sets start and end. `pairs`: overlapped pairs run as units. `capacity`:
 * the most messages of a channel not yet taken (0: any number). True if all programs come to their
 * end.
 */
static inline bool oracle_play(struct oracle *o, const struct sp_costs *c, bool pairs, int capacity)
{
    int pc[ORACLE_STAGES] = {0}, on_way[ORACLE_STAGES][ORACLE_STAGES][2] = {{{0}}};
    bool moved = true, all = true;

    while (moved) {
        moved = false;
        for (int s = 0; s < o->p; s++) {
            const struct sp_program *prog = &o->plan->programs[s];
            double start = pc[s] > 0 ? o->end[s][pc[s] - 1] : 0, end;
            int from[2] = {-1, -1}, to[2] = {-1, -1}, ops = 1;
            bool ready = pc[s] < prog->n;

            if (ready && pairs && prog->ops[pc[s]].overlap && pc[s] + 1 < prog->n)
                ops = 2;
            for (int j = 0; ready && j < ops; j++) {
                const struct sp_op *op = &prog->ops[pc[s] + j];
                int g = o->global[s][op->chunk], pipe = oracle_pipe(o, op->mb), waits[4][3];
                int n = oracle_waits(o, op->pass, g, op->slice, waits), forward = op->pass == SP_F;
                int next = op->pass == SP_F ? g + 1 : op->pass == SP_B ? g - 1 : -1;

                for (int i = 0; i < n && ready; i++) {
                    int src = o->stage[pipe][waits[i][1]];
                    int at = *oracle_at(o, waits[i][0], op->mb, waits[i][1], waits[i][2]);

                    ready = at >= 0 && at < pc[src];
                    if (ready && o->end[src][at] + (src == s ? 0 : c->comm) > start)
                        start = o->end[src][at] + (src == s ? 0 : c->comm);
                    if (src != s)
                        from[j] = src;
                }
                if (next >= 0 && next < o->globals && o->stage[pipe][next] != s)
                    to[j] = o->stage[pipe][next];
                if (to[j] >= 0 && capacity > 0 && on_way[s][to[j]][forward] >= capacity)
                    ready = false;
            }
            if (!ready)
                continue;
            end = start;
            for (int j = 0; j < ops; j++)
                end += oracle_cost(o, c, s, &prog->ops[pc[s] + j]);
            for (int j = 0; j < ops; j++) {
                int forward = prog->ops[pc[s]].pass == SP_F;

                if (from[j] >= 0)
                    on_way[from[j]][s][forward]--;
                if (to[j] >= 0)
                    on_way[s][to[j]][forward]++;
                o->start[s][pc[s]] = start;
                o->end[s][pc[s]++] = end;
            }
            moved = true;
        }
    }
    for (int s = 0; s < o->p; s++)
        all = all && pc[s] == o->plan->programs[s].n;
    return all;
}

/* Returns all errors of the programs; 0: they are legal. */
static inline int oracle_judge(struct oracle *o)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    int wrong = oracle_place(o);

    if (wrong & WRONG_FOREIGN)
        return wrong;
    wrong |= oracle_order(o);
    if (!(wrong & ~WRONG_TURN)) {
        wrong |= oracle_play(o, &unit, false, 0) ? 0 : WRONG_STUCK;
        wrong |= oracle_play(o, &unit, true, 0) ? 0 : WRONG_PAIRSTUCK;
    }
    return wrong;
}

/* The most activations of a stage alive at once: from F to W, or to B if there is no W. */
static inline int oracle_peak(const struct oracle *o, int s)
{
    const struct sp_program *prog = &o->plan->programs[s];
    int live = 0, peak = 0;

    for (int k = 0; k < prog->n; k++) {
        const struct sp_op *op = &prog->ops[k];
        int w = *oracle_at(o, SP_W, op->mb, o->global[s][op->chunk], op->slice);

        live += op->pass == SP_F;
        peak = live > peak ? live : peak;
        live -= op->pass == SP_W || (op->pass == SP_B && w < 0);
    }
    return peak;
}

#endif
