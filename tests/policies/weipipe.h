/*
 * An independent model of WeiPipe, against which tests compare the schedules, the rings, the
 * verifier and the list simulation. A micro-batch goes through a chain of 2P+1 links on its worker:
 * forward of chunks 0 .. P-1, the head, backward of chunks P-1 .. 0; each link waits for the one
 * before. Round g begins on worker 0 in turn gP, or 2gP if naive. Each link takes a turn, except
 * the head, which shares that of the last forward; worker r is r turns later. A turn runs the
 * backward, the forward, then the head. The first op of a turn waits for the last op of the
 * previous worker's turn. The model uses tables, and rounds over all workers until nothing moves;
 * it calls nothing of src/policies.
 */
#ifndef SP_TESTS_WEIPIPE_H
#define SP_TESTS_WEIPIPE_H

#include "policies/common.h"

/* Bits for the errors of a program. */
enum {
    WEIPIPE_FOREIGN = 1, /* an op that no schedule of the family has there */
    WEIPIPE_TWICE = 2,   /* an op appears twice */
    WEIPIPE_MISSING = 4, /* an op does not appear */
    WEIPIPE_EARLY = 8,   /* before the link that it waits for */
    WEIPIPE_STUCK = 16,  /* deadlock */
    WEIPIPE_TURN = 32    /* messages of a channel are taken in another order than sent */
};

#define WEIPIPE_STAGES 8
#define WEIPIPE_TURNS 96 /* of a worker */

enum { WEIPIPE_BACKWARD, WEIPIPE_FORWARD, WEIPIPE_HEAD }; /* ranks in a turn */

struct weipipe {
    const struct sp_plan *plan;
    bool naive;
    int p, m, rounds;
    int turns;  /* of a worker */
    int *place; /* [mb][link] in the program of its worker, -1: none */
    int *at;    /* [stage][turn][rank] in the program, -1: none */
    /* results of the last play: */
    double *start[WEIPIPE_STAGES], *end[WEIPIPE_STAGES];
    double makespan, busy[WEIPIPE_STAGES];
    int peak[WEIPIPE_STAGES], messages;
};

static inline const char *weipipe_name(bool naive)
{
    return naive ? "weipipe-naive" : "weipipe";
}

static inline void weipipe_plan(bool naive, int p, int rounds, struct sp_plan *plan)
{
    make_plan(weipipe_name(naive), p, p * rounds, plan);
}

/* The link of an op, -1 if there is no such op on the worker. */
static inline int weipipe_link(const struct weipipe *h, int stage, const struct sp_op *op)
{
    if (op->mb < 0 || op->mb >= h->m || op->mb % h->p != stage || op->slice)
        return -1;
    if (op->part == SP_HEAD && op->pass == SP_F && op->chunk == 0)
        return h->p;
    if (op->part != SP_CHUNK || op->chunk < 0 || op->chunk >= h->p)
        return -1;
    return op->pass == SP_F ? op->chunk : op->pass == SP_B ? 2 * h->p - op->chunk : -1;
}

/* The turn of worker 0 in which it runs a link of a round. */
static inline int weipipe_turn(const struct weipipe *h, int round, int link)
{
    int first = (h->naive ? 2 * round : round) * h->p;

    return first + (link < h->p ? link : link - 1);
}

static inline int weipipe_rank(const struct weipipe *h, int link)
{
    return link < h->p ? WEIPIPE_FORWARD : link == h->p ? WEIPIPE_HEAD : WEIPIPE_BACKWARD;
}

static inline int *weipipe_place(const struct weipipe *h, int mb, int link)
{
    return &h->place[mb * (2 * h->p + 1) + link];
}

static inline int *weipipe_at(const struct weipipe *h, int stage, int turn, int rank)
{
    return &h->at[(stage * h->turns + turn) * 3 + rank];
}

/* The first or last rank that a turn has. */
static inline int weipipe_edge(const struct weipipe *h, int turn, bool last)
{
    int edge = -1;

    for (int round = 0; round < h->rounds; round++) {
        for (int link = 0; link <= 2 * h->p; link++) {
            int rank = weipipe_rank(h, link);

            if (weipipe_turn(h, round, link) == turn &&
                (edge < 0 || (last ? rank > edge : rank < edge)))
                edge = rank;
        }
    }
    return edge;
}

static inline void weipipe_create(const struct sp_plan *plan, bool naive, struct weipipe *h)
{
    *h = (struct weipipe){
        .plan = plan, .naive = naive, .p = plan->layout.stages, .m = plan->layout.micro_batches};
    assert_true(h->p <= WEIPIPE_STAGES && h->m % h->p == 0);
    h->rounds = h->m / h->p;
    h->turns = naive ? 2 * h->m : h->m + h->p;
    assert_true(h->turns <= WEIPIPE_TURNS);
    h->place = malloc(sizeof(int) * (size_t)(h->m * (2 * h->p + 1)));
    h->at = malloc(sizeof(int) * (size_t)(h->p * h->turns * 3));
    assert_true(h->place && h->at);
    for (int s = 0; s < h->p; s++) {
        h->start[s] = calloc(2 * (size_t)plan->programs[s].n + 1, sizeof(double));
        assert_non_null(h->start[s]);
        h->end[s] = h->start[s] + plan->programs[s].n;
    }
}

static inline void weipipe_destroy(struct weipipe *h)
{
    free(h->place);
    free(h->at);
    for (int s = 0; s < h->p; s++)
        free(h->start[s]);
}

/* Finds the place of every op; returns FOREIGN, TWICE and MISSING. */
static inline int weipipe_index(struct weipipe *h)
{
    int ops = h->m * (2 * h->p + 1), wrong = 0;

    memset(h->place, -1, sizeof(int) * (size_t)ops);
    memset(h->at, -1, sizeof(int) * (size_t)(h->p * h->turns * 3));
    for (int s = 0; s < h->p; s++) {
        for (int k = 0; k < h->plan->programs[s].n; k++) {
            const struct sp_op *op = &h->plan->programs[s].ops[k];
            int link = weipipe_link(h, s, op);

            if (link < 0) {
                wrong |= WEIPIPE_FOREIGN;
            } else if (*weipipe_place(h, op->mb, link) >= 0) {
                wrong |= WEIPIPE_TWICE;
            } else {
                *weipipe_place(h, op->mb, link) = k;
                *weipipe_at(h, s, weipipe_turn(h, op->mb / h->p, link), weipipe_rank(h, link)) = k;
            }
        }
    }
    for (int i = 0; i < ops; i++)
        wrong |= h->place[i] < 0 ? WEIPIPE_MISSING : 0;
    return wrong;
}

/* Besides the link before, the first op of a turn waits for the last op of the turn of the previous
 * worker, *from; returns that op, -1: none. Worker P-1 is P turns ahead of worker 0. */
static inline int weipipe_waits(const struct weipipe *h, int stage, int turn, int rank, int *from)
{
    int before = stage > 0 ? turn : turn - h->p;

    *from = -1;
    if (rank != weipipe_edge(h, turn, false) || before < 0 || h->p == 1)
        return -1;
    *from = stage > 0 ? stage - 1 : h->p - 1;
    return *weipipe_at(h, *from, before, weipipe_edge(h, before, true));
}

static inline double weipipe_cost(const struct weipipe *h, const struct sp_costs *c, int link)
{
    return link < h->p ? c->f : link == h->p ? 0 : c->b + c->w;
}

/* Runs the next op of a worker if it can. */
static inline bool weipipe_step(struct weipipe *h, const struct sp_costs *c, int s, int pc[])
{
    const struct sp_op *op = &h->plan->programs[s].ops[pc[s]];
    double start = pc[s] > 0 ? h->end[s][pc[s] - 1] : 0, there;
    int link, from, k;

    if (pc[s] == h->plan->programs[s].n)
        return false;
    link = weipipe_link(h, s, op);
    if (link > 0 && *weipipe_place(h, op->mb, link - 1) >= pc[s])
        return false;
    k = weipipe_waits(h, s, weipipe_turn(h, op->mb / h->p, link), weipipe_rank(h, link), &from);
    if (from >= 0) {
        if (k >= pc[from])
            return false;
        there = h->end[from][k] + c->comm;
        start = there > start ? there : start;
        h->messages++;
    }
    h->start[s][pc[s]] = start;
    h->end[s][pc[s]] = start + weipipe_cost(h, c, link);
    h->busy[s] += weipipe_cost(h, c, link);
    h->makespan = h->end[s][pc[s]] > h->makespan ? h->end[s][pc[s]] : h->makespan;
    pc[s]++;
    return true;
}

/* Plays complete programs; true if all come to their end. */
static inline bool weipipe_play(struct weipipe *h, const struct sp_costs *c)
{
    int pc[WEIPIPE_STAGES] = {0}, left = 0;
    bool moved = true;

    h->makespan = 0;
    h->messages = 0;
    memset(h->busy, 0, sizeof h->busy);
    while (moved) {
        moved = false;
        for (int s = 0; s < h->p; s++) {
            while (weipipe_step(h, c, s, pc))
                moved = true;
        }
    }
    for (int s = 0; s < h->p; s++) {
        int live = 0;

        left += h->plan->programs[s].n - pc[s];
        h->peak[s] = 0;
        for (int k = 0; k < h->plan->programs[s].n; k++) {
            int link = weipipe_link(h, s, &h->plan->programs[s].ops[k]);

            live += link < h->p ? 1 : link == h->p ? 0 : -1;
            h->peak[s] = live > h->peak[s] ? live : h->peak[s];
        }
    }
    return left == 0;
}

/* Returns EARLY and TURN. */
static inline int weipipe_order(const struct weipipe *h)
{
    int wrong = 0;

    for (int s = 0; s < h->p; s++) {
        int last[2] = {-1, -1}; /* place in its sender of the last message taken, by pass */

        for (int k = 0; k < h->plan->programs[s].n; k++) {
            const struct sp_op *op = &h->plan->programs[s].ops[k];
            int link = weipipe_link(h, s, op), from, at;

            if (link > 0 && *weipipe_place(h, op->mb, link - 1) > k)
                wrong |= WEIPIPE_EARLY;
            at = weipipe_waits(h, s, weipipe_turn(h, op->mb / h->p, link), weipipe_rank(h, link),
                               &from);
            if (from < 0)
                continue;
            wrong |= at >= 0 && at < last[op->pass == SP_B] ? WEIPIPE_TURN : 0;
            last[op->pass == SP_B] = at;
        }
    }
    return wrong;
}

/* Returns all errors of the programs; 0: they are legal. */
static inline int weipipe_judge(struct weipipe *h)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    int wrong = weipipe_index(h);

    if (!(wrong & WEIPIPE_FOREIGN))
        wrong |= weipipe_order(h);
    if (!(wrong & ~WEIPIPE_TURN) && !weipipe_play(h, &unit))
        wrong |= WEIPIPE_STUCK;
    return wrong;
}

#endif
