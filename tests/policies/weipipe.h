/*
 * The oracle's knowledge of WeiPipe. A micro-batch goes through a chain of 2P+1 links on its
 * worker: forward of chunks 0 .. P-1, the head, backward of chunks P-1 .. 0; each link waits for
 * the one before. Round g begins on worker 0 in turn gP, or 2gP if naive. Each link takes a turn,
 * except the head, which shares that of the last forward; worker r is r turns later. A turn runs
 * the backward, the forward, then the head. The first op of a turn waits for the last op of the
 * previous worker's turn.
 */
#ifndef SP_TESTS_WEIPIPE_H
#define SP_TESTS_WEIPIPE_H

#include "policies/oracle.h"

#define WEIPIPE_STAGES 8
#define WEIPIPE_TURNS 96 /* of a worker */

enum { WEIPIPE_BACKWARD, WEIPIPE_FORWARD, WEIPIPE_HEAD, WEIPIPE_RANKS }; /* ranks in a turn */

static inline const char *weipipe_name(bool naive)
{
    return naive ? "weipipe-naive" : "weipipe";
}

static inline void weipipe_plan(bool naive, int p, int rounds, struct sp_plan *plan)
{
    make_plan(weipipe_name(naive), p, p * rounds, plan);
}

/* The link of an op, -1 if there is no such op on the worker. */
static inline int weipipe_link(const struct oracle *h, int stage, const struct sp_op *op)
{
    if (op->mb < 0 || op->mb >= h->m || op->mb % h->p != stage || op->slice)
        return -1;
    if (op->part == SP_HEAD && op->pass == SP_F && op->chunk == 0)
        return h->p;
    if (op->part != SP_CHUNK || op->chunk < 0 || op->chunk >= h->p)
        return -1;
    return op->pass == SP_F ? op->chunk : op->pass == SP_B ? 2 * h->p - op->chunk : -1;
}

static inline int weipipe_id(const struct oracle *h, int stage, const struct sp_op *op)
{
    int link = weipipe_link(h, stage, op);

    return link < 0 ? -1 : op->mb * (2 * h->p + 1) + link;
}

/* The turn of worker 0 in which it runs a link of a round. */
static inline int weipipe_turn(const struct oracle *h, int round, int link)
{
    int first = (h->naive ? 2 * round : round) * h->p;

    return first + (link < h->p ? link : link - 1);
}

static inline int weipipe_rank(const struct oracle *h, int link)
{
    return link < h->p ? WEIPIPE_FORWARD : link == h->p ? WEIPIPE_HEAD : WEIPIPE_BACKWARD;
}

/* The number of worker 0's op of a rank in a turn, -1: the turn has none. */
static inline int *weipipe_in_turn(const struct oracle *h, int turn, int rank)
{
    return &h->turn[turn * WEIPIPE_RANKS + rank];
}

/* The first or last op that a turn of a worker has: its number. */
static inline int weipipe_edge(const struct oracle *h, int worker, int turn, bool last)
{
    int rank = last ? WEIPIPE_RANKS - 1 : 0;

    while (*weipipe_in_turn(h, turn, rank) < 0)
        rank += last ? -1 : 1;
    return *weipipe_in_turn(h, turn, rank) + worker * (2 * h->p + 1);
}

/* Besides the link before, the first op of a turn waits for the last op of the turn of the previous
 * worker. Worker P-1 is P turns ahead of worker 0. */
static inline int weipipe_waits(const struct oracle *h, int stage, const struct sp_op *op,
                                struct oracle_wait out[ORACLE_WAITS])
{
    int link = weipipe_link(h, stage, op), id = weipipe_id(h, stage, op), n = 0;
    int turn = weipipe_turn(h, op->mb / h->p, link), before = stage > 0 ? turn : turn - h->p;
    int from = stage > 0 ? stage - 1 : h->p - 1;

    if (link > 0)
        out[n++] = (struct oracle_wait){stage, h->place[id - 1]};
    if (before >= 0 && h->p > 1 && id == weipipe_edge(h, stage, turn, false))
        out[n++] = (struct oracle_wait){from, h->place[weipipe_edge(h, from, before, true)]};
    return n;
}

static inline double weipipe_cost(const struct oracle *h, const struct sp_costs *c, int stage,
                                  const struct sp_op *op)
{
    int link = weipipe_link(h, stage, op);

    return link < h->p ? c->f : link == h->p ? 0 : c->b + c->w;
}

static inline int weipipe_channel(const struct oracle *h, const struct sp_op *op)
{
    (void)h;
    return op->pass == SP_B;
}

static inline int weipipe_live(const struct oracle *h, int stage, const struct sp_op *op)
{
    int link = weipipe_link(h, stage, op);

    return link < h->p ? 1 : link == h->p ? 0 : -1;
}

static inline void weipipe_create(const struct sp_plan *plan, bool naive, struct oracle *h)
{
    static const struct oracle_family family = {.id = weipipe_id,
                                                .waits = weipipe_waits,
                                                .cost = weipipe_cost,
                                                .channel = weipipe_channel,
                                                .live = weipipe_live};
    int p = plan->layout.stages, m = plan->layout.micro_batches, ids = m * (2 * p + 1);

    *h = (struct oracle){.family = &family,
                         .ids = ids,
                         .required = ids,
                         .naive = naive,
                         .rounds = m / p,
                         .turns = naive ? 2 * m : m + p};
    assert_true(p <= WEIPIPE_STAGES && m % p == 0 && h->turns <= WEIPIPE_TURNS);
    oracle_create(plan, h);
    h->turn = malloc((size_t)(h->turns * WEIPIPE_RANKS) * sizeof *h->turn);
    assert_non_null(h->turn);
    memset(h->turn, -1, (size_t)(h->turns * WEIPIPE_RANKS) * sizeof *h->turn);
    for (int i = 0; i < ids; i += p * (2 * p + 1)) /* the micro-batches of worker 0 */
        for (int link = 0; link <= 2 * p; link++)
            *weipipe_in_turn(h, weipipe_turn(h, i / (2 * p + 1) / p, link), weipipe_rank(h, link)) =
                i + link;
}

/* Makes a plan that the oracle finds legal. */
static inline void weipipe_legal(bool naive, int p, int rounds, struct sp_plan *plan,
                                 struct oracle *h)
{
    weipipe_plan(naive, p, rounds, plan);
    weipipe_create(plan, naive, h);
    assert_int_equal(oracle_judge(h), 0);
}

#endif
