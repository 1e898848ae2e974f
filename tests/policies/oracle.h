/*
 * An independent and simple check whether a set of programs is legal, and of the times that it
 * takes, against which tests compare schedules, the verifier and the list simulation. It uses
 * tables, and rounds over all stages until nothing moves; it calls nothing of src/policies but, at
 * the end, what it is compared with. layers.h, helix.h, weipipe.h and test_fsdp.c say which ops a
 * family has and what they wait for.
 */
#ifndef SP_TESTS_ORACLE_H
#define SP_TESTS_ORACLE_H

#include "policies/play.h"

/* Bits for the errors of a program. */
enum {
    WRONG_FOREIGN = 1,     /* an op that no schedule of the family has there */
    WRONG_TWICE = 2,       /* an op appears twice */
    WRONG_MISSING = 4,     /* an op that must appear does not */
    WRONG_EARLY = 8,       /* before an op of its stage that it waits for */
    WRONG_STUCK = 16,      /* deadlock */
    WRONG_TURN = 32,       /* messages of a channel are taken in another order than sent */
    WRONG_PAIR = 64,       /* overlapped ops that are not a forward and a backward */
    WRONG_PAIRSTUCK = 128, /* deadlock of overlapped pairs */
    WRONGS = 8
};

enum { ORACLE_STAGES = 16, ORACLE_CHUNKS = 8, ORACLE_CHANNELS = 6, ORACLE_WAITS = 6 };

struct oracle;

/* An op that another one waits for: its place in the program of its stage, -1: nowhere. */
struct oracle_wait {
    int stage, at;
};

struct oracle_family {
    bool pairs; /* a forward and a backward may overlap */
    /* The number of an op, -1: no schedule of the family has it on the stage. */
    int (*id)(const struct oracle *o, int stage, const struct sp_op *op);
    /* Lists the ops that an op waits for; returns how many. */
    int (*waits)(const struct oracle *o, int stage, const struct sp_op *op,
                 struct oracle_wait out[ORACLE_WAITS]);
    double (*cost)(const struct oracle *o, const struct sp_costs *c, int stage,
                   const struct sp_op *op);
    /* Which of the channels between two stages brings the messages that an op waits for; -1: they
     * keep no order. */
    int (*channel)(const struct oracle *o, const struct sp_op *op);
    /* Activations that an op adds; negative: that it releases. */
    int (*live)(const struct oracle *o, int stage, const struct sp_op *op);
};

struct oracle {
    const struct oracle_family *family;
    const struct sp_plan *plan;
    int p, m, v, n, L; /* stages, micro-batches, chunks, slices, layers */
    int ids, required; /* ops that there are; the first of them must all appear */
    int *place;        /* [ids] place in the program of its stage, -1: none */
    /* results of the last play: */
    double *start[ORACLE_STAGES], *end[ORACLE_STAGES];
    double makespan, busy[ORACLE_STAGES];
    int peak[ORACLE_STAGES], messages;
    /* state of a play: */
    const struct sp_costs *costs;
    bool pairs;
    int capacity;           /* messages of a channel not yet taken; 0: any number */
    int pc[ORACLE_STAGES];  /* the next op */
    int *to[ORACLE_STAGES]; /* the stage to which an op sends, -1: none */
    int on_way[ORACLE_STAGES][ORACLE_STAGES][ORACLE_CHANNELS];

    /* layers.h: */
    int globals, global[ORACLE_STAGES][ORACLE_CHUNKS]; /* global stage of a chunk */
    int home[2][ORACLE_STAGES * ORACLE_CHUNKS];        /* [pipe][global] its stage */
    bool two_ways;
    /* helix.h: */
    int fold, streams;
    /* weipipe.h: */
    bool naive;
    int rounds, turns, *turn;
};

/* Finds the place of every op; returns FOREIGN, TWICE and MISSING. */
static inline int oracle_index(struct oracle *o)
{
    int wrong = 0;

    memset(o->place, -1, (size_t)o->ids * sizeof *o->place);
    for (int s = 0; s < o->p; s++) {
        for (int k = 0; k < o->plan->programs[s].n; k++) {
            int id = o->family->id(o, s, &o->plan->programs[s].ops[k]);

            if (id < 0)
                wrong |= WRONG_FOREIGN;
            else if (o->place[id] >= 0)
                wrong |= WRONG_TWICE;
            else
                o->place[id] = k;
        }
    }
    for (int i = 0; i < o->required; i++)
        wrong |= o->place[i] < 0 ? WRONG_MISSING : 0;
    return wrong;
}

/* The caller has set the family, `ids`, `required` and what the family needs. */
static inline void oracle_create(const struct sp_plan *plan, struct oracle *o)
{
    const struct sp_layout *lay = &plan->layout;

    o->plan = plan;
    o->p = lay->stages;
    o->m = lay->micro_batches;
    o->v = lay->chunks;
    o->n = lay->slices;
    o->L = lay->layers;
    assert_true(o->p <= ORACLE_STAGES);
    o->place = malloc((size_t)o->ids * sizeof *o->place);
    assert_non_null(o->place);
    for (int s = 0; s < o->p; s++) {
        size_t n = (size_t)plan->programs[s].n;

        o->start[s] = calloc(2 * n + 1, sizeof(double));
        o->to[s] = malloc((n + 1) * sizeof(int));
        assert_true(o->start[s] && o->to[s]);
        o->end[s] = o->start[s] + n;
    }
}

static inline void oracle_destroy(struct oracle *o)
{
    free(o->place);
    free(o->turn);
    for (int s = 0; s < o->p; s++) {
        free(o->start[s]);
        free(o->to[s]);
    }
}

static inline void oracle_done(struct sp_plan *plan, struct oracle *o)
{
    oracle_destroy(o);
    sp_plan_destroy(plan);
}

/* Returns EARLY, PAIR and TURN, and finds out to which stage each op sends. */
static inline int oracle_order(struct oracle *o)
{
    int wrong = 0;

    for (int s = 0; s < o->p; s++)
        memset(o->to[s], -1, (size_t)o->plan->programs[s].n * sizeof(int));
    for (int s = 0; s < o->p; s++) {
        const struct sp_program *prog = &o->plan->programs[s];
        int last[ORACLE_STAGES]
                [ORACLE_CHANNELS]; /* place in its sender of the last message taken */

        memset(last, -1, sizeof last);
        for (int k = 0; k < prog->n; k++) {
            const struct sp_op *op = &prog->ops[k];
            struct oracle_wait waits[ORACLE_WAITS];
            int n = o->family->waits(o, s, op, waits), channel = o->family->channel(o, op);

            for (int i = 0; i < n; i++) {
                int from = waits[i].stage, at = waits[i].at;

                if (from == s && at > k)
                    wrong |= WRONG_EARLY;
                if (from == s && at >= 0 && at == k - 1 && prog->ops[at].overlap)
                    wrong |= WRONG_PAIR;
                if (from == s || at < 0)
                    continue;
                o->to[from][at] = s;
                if (channel < 0)
                    continue;
                wrong |= at < last[from][channel] ? WRONG_TURN : 0;
                last[from][channel] = at;
            }
            if (op->overlap && (!o->family->pairs || k == prog->n - 1 || op->pass != SP_F ||
                                op[1].pass != SP_B || op[1].overlap))
                wrong |= WRONG_PAIR;
        }
    }
    return wrong;
}

/* Returns true if an op can run; *start is then not before its inputs are there. */
static inline bool oracle_ready(const struct oracle *o, int s, int k, double *start)
{
    const struct sp_op *op = &o->plan->programs[s].ops[k];
    struct oracle_wait waits[ORACLE_WAITS];
    int n = o->family->waits(o, s, op, waits), to = o->to[s][k];

    for (int i = 0; i < n; i++) {
        int from = waits[i].stage, at = waits[i].at;

        if (at < 0 || at >= o->pc[from])
            return false;
        *start = fmax(*start, o->end[from][at] + (from == s ? 0 : o->costs->comm));
    }
    return to < 0 || o->capacity == 0 || o->on_way[s][to][o->family->channel(o, op)] < o->capacity;
}

static inline void oracle_run(struct oracle *o, int s, int k, double start, double end)
{
    const struct sp_op *op = &o->plan->programs[s].ops[k];
    struct oracle_wait waits[ORACLE_WAITS];
    int n = o->family->waits(o, s, op, waits), channel = o->family->channel(o, op);

    for (int i = 0; i < n; i++) {
        o->messages += waits[i].stage != s;
        if (o->capacity > 0 && waits[i].stage != s)
            o->on_way[waits[i].stage][s][channel]--;
    }
    if (o->capacity > 0 && o->to[s][k] >= 0)
        o->on_way[s][o->to[s][k]][channel]++;
    o->start[s][k] = start;
    o->end[s][k] = end;
    o->makespan = fmax(o->makespan, end);
}

/* Runs the next op of a stage, or two that overlap, if it can. */
static inline bool oracle_step(struct oracle *o, int s)
{
    const struct sp_program *prog = &o->plan->programs[s];
    int k = o->pc[s], ops = o->pairs && k + 1 < prog->n && prog->ops[k].overlap ? 2 : 1;
    double start = k > 0 ? o->end[s][k - 1] : 0, cost = 0;

    if (k == prog->n)
        return false;
    for (int i = k; i < k + ops; i++) {
        if (!oracle_ready(o, s, i, &start))
            return false;
        cost += o->family->cost(o, o->costs, s, &prog->ops[i]);
    }
    for (int i = k; i < k + ops; i++)
        oracle_run(o, s, i, start, start + cost);
    o->busy[s] += cost;
    o->pc[s] += ops;
    return true;
}

/*
 * Plays the programs. `pairs`: overlapped pairs run as units. `capacity`: the most messages of a
 * channel not yet taken (0: any number). True if all programs come to their end.
 */
static inline bool oracle_play(struct oracle *o, const struct sp_costs *c, bool pairs, int capacity)
{
    bool moved = true, all = true;

    o->costs = c;
    o->pairs = pairs;
    o->capacity = capacity;
    o->makespan = 0;
    o->messages = 0;
    memset(o->busy, 0, sizeof o->busy);
    memset(o->pc, 0, sizeof o->pc);
    memset(o->on_way, 0, sizeof o->on_way);
    while (moved) {
        moved = false;
        for (int s = 0; s < o->p; s++) {
            while (oracle_step(o, s))
                moved = true;
        }
    }
    for (int s = 0; s < o->p; s++) {
        int live = 0;

        all &= o->pc[s] == o->plan->programs[s].n;
        o->peak[s] = 0;
        for (int k = 0; k < o->plan->programs[s].n; k++) {
            live += o->family->live(o, s, &o->plan->programs[s].ops[k]);
            o->peak[s] = live > o->peak[s] ? live : o->peak[s];
        }
    }
    return all;
}

/* Returns all errors of the programs; 0: they are legal. */
static inline int oracle_judge(struct oracle *o)
{
    static const struct sp_costs unit = {
        .f = 1, .b = 1, .w = 1, .parts = {.pre = 1, .attn = 1, .post = 1, .backward = 2}};
    int wrong = oracle_index(o);

    if (wrong & WRONG_FOREIGN)
        return wrong;
    wrong |= oracle_order(o);
    if (!(wrong & ~WRONG_TURN)) {
        wrong |= oracle_play(o, &unit, false, 0) ? 0 : WRONG_STUCK;
        wrong |= oracle_play(o, &unit, true, 0) ? 0 : WRONG_PAIRSTUCK;
    }
    return wrong;
}

/* Returns true if two times are equal; `within`: up to rounding, of this relative size. */
static inline bool oracle_near(double a, double b, double within)
{
    return fabs(a - b) <= within * (1 + fabs(a) + fabs(b));
}

/* No op is before what it waits for. Returns how many messages the ops of a stage wait for. */
static inline int oracle_compare_waits(const struct oracle *o, const struct sp_times *t, int s)
{
    const struct sp_program *prog = &o->plan->programs[s];
    int messages = 0;

    for (int k = 0; k < prog->n; k++) {
        struct oracle_wait waits[ORACLE_WAITS];
        int n = o->family->waits(o, s, &prog->ops[k], waits);
        bool second = o->pairs && k > 0 && prog->ops[k - 1].overlap;

        assert_true(k == 0 || second || t->start[s][k] >= t->end[s][k - 1]);
        for (int i = 0; i < n; i++) {
            bool message = waits[i].stage != s;

            messages += message;
            assert_true(t->end[waits[i].stage][waits[i].at] + message * o->costs->comm <=
                        t->start[s][k]);
        }
    }
    return messages;
}

/* Compares the list simulation with a play: the times of every op, and all figures. */
static inline void oracle_compare(struct oracle *o, const struct sp_costs *c, enum sp_channel kind,
                                  double within)
{
    const struct sp_plan *plan = o->plan;
    int messages = 0;
    double idle = 0;
    struct sp_times t;

    play_plan(plan, c, kind, &t);
    assert_true(oracle_play(o, c, kind == SP_PAIRED, 0));
    for (int s = 0; s < o->p; s++) {
        int n = plan->programs[s].n;
        char text[SP_OP_TEXT];

        for (int k = 0; k < n; k++)
            if (!oracle_near(t.start[s][k], o->start[s][k], within) ||
                !oracle_near(t.end[s][k], o->end[s][k], within))
                fail_msg("%s, comm %g: %s of stage %d runs %g .. %g, not %g .. %g", describe(plan),
                         c->comm, sp_op_print(&plan->programs[s].ops[k], o->n > 1, text), s,
                         t.start[s][k], t.end[s][k], o->start[s][k], o->end[s][k]);
        messages += oracle_compare_waits(o, &t, s);
        assert_true(oracle_near(t.busy[s], o->busy[s], within));
        assert_true(oracle_near(t.idle[s], o->makespan - o->busy[s], within));
        assert_true(oracle_near(t.span[s], o->end[s][n - 1] - o->start[s][0], within));
        assert_int_equal(t.peak_live[s], o->peak[s]);
        idle += t.idle[s];
    }
    assert_true(oracle_near(t.makespan, o->makespan, within));
    assert_true(oracle_near(t.bubble_ratio, t.makespan > 0 ? idle / (o->p * t.makespan) : 0, 1e-9));
    assert_int_equal(t.messages, o->messages);
    assert_int_equal(t.messages, messages);
    sp_times_destroy(&t);
}

#endif
