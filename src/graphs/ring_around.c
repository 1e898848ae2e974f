/*
 * Weights and gradients around the ring, as src/policies/families/ring.h says which worker has what in which
 * turn. Weights go on to the next worker as soon as a turn begins, gradients when its ops were
 * submitted; inside a process they are handed over as they are. A chunk's gradient sets out as the
 * gradient of its owner's blocks, zero, and comes home there.
 */
#include "graphs/family.h"
#include "graphs/message.h"
#include "graphs/ring_flow.h"
#include <stdlib.h>

struct sp_hands {
    int turn;                          /* whose weights and gradients these are */
    bool passed[SP_RING_ITEMS];        /* on to the next worker, in this turn */
    struct sp_hand now[SP_RING_ITEMS]; /* what the worker has, see sp_ring_item */
    struct sp_hand
        *inbox; /* [SP_RING_ITEMS][cap] from the worker before, of this process, by turn */
    int cap;    /* turns that a worker may be ahead of the next one */
    starpu_data_handle_t *blocks;
};

static int chunk_at(const struct sp_graph *g, int r, int t, int item)
{
    return sp_ring_item(sp_graph_ring(g), r, t, item).chunk;
}

static bool is_gradient(const struct sp_graph *g, int r, int t, int item)
{
    return sp_ring_item(sp_graph_ring(g), r, t, item).payload == SP_RING_GRADIENT;
}

/* Whether what a worker has in turn t goes on to the next one. */
static bool goes_on(const struct sp_graph *g, int t, int item)
{
    if (sp_graph_workers(g) == 1)
        return false;
    return item == 0 ? t >= 0 && t <= sp_ring_last_forward(sp_graph_ring(g))
                     : t >= sp_graph_workers(g) && t <= sp_ring_last_backward(sp_graph_ring(g));
}

/* The place in the order of the first op of a worker in turn t or later, -1: it has none. */
static int place_of_turn(const struct sp_graph *g, int worker, int t)
{
    const struct sp_ring *ring = sp_graph_ring(g);
    int k = t > worker ? t - worker : 0;

    while (k < ring->turns && ring->first[k] == ring->first[k + 1])
        k++;
    if (k >= ring->turns)
        return -1;
    return sp_op_position(g, worker, sp_graph_op(g, worker, ring->first[k]));
}

/*
 * Where in the order turn t comes to a worker: with its own op, or, while it has not begun or is
 * done, along with the op of worker 0 or P - 1, which are the first to begin and the last to end.
 */
static int comes_at(const struct sp_graph *g, int worker, int t)
{
    int last = sp_graph_workers(g) - 1, at;

    if (t < worker)
        return place_of_turn(g, 0, t);
    at = place_of_turn(g, worker, t);
    at = at >= 0 ? at : place_of_turn(g, last, t);
    return at >= 0 ? at : g->n_order - 1;
}

static struct sp_hand *inbox_of(struct sp_hands *h, int item, int t)
{
    return &h->inbox[item * h->cap + t % h->cap];
}

/* The worker's part of a ring in its turn, to the next worker. Weights of a pool are held while the
 * turn lasts; a gradient leaves for good. */
static void pass(struct sp_graph *g, struct sp_stage *st, int item)
{
    struct sp_hands *h = st->hands;
    int to = (st->index + 1) % sp_graph_workers(g);
    struct sp_stage *next = sp_graph_stage(g, to);
    struct sp_hand *hand = &h->now[item];

    if (h->passed[item] || !goes_on(g, h->turn, item))
        return;
    h->passed[item] = true;
    sp_hand_hold(hand);
    if (next)
        sp_hand_share(hand, inbox_of(next->hands, item, h->turn));
    else
        sp_hand_send(g, st, hand, to, h->turn, item, comes_at(g, to, h->turn + 1));
}

/* Gradients that were handed over in this process but have been elsewhere come home. */
static void bring_home(struct sp_graph *g, struct sp_stage *st, const struct sp_hand *hand,
                       int chunk)
{
    struct sp_lane lane = sp_stage_lane(g, st, 'D');

    for (int i = 0; hand->pooled && i < hand->n; i++) {
        struct sp_block *b = sp_ring_block(g, st, chunk, i);

        lane.layer = b->layer;
        sp_copy_insert(&lane, hand->block[i], b->g);
    }
}

static void advance(struct sp_graph *g, struct sp_stage *st, int t);

/* What the worker before passed on after turn t: for turn t + 1. */
static void receive(struct sp_graph *g, struct sp_stage *st, int t, int item)
{
    struct sp_hands *h = st->hands;
    int from = (st->index + sp_graph_workers(g) - 1) % sp_graph_workers(g);
    int chunk = chunk_at(g, from, t, item);
    struct sp_stage *before = sp_graph_stage(g, from);
    bool gradient = is_gradient(g, from, t, item);
    bool home = sp_ring_comes_home(sp_graph_ring(g)) && gradient &&
                t == sp_ring_last_backward(sp_graph_ring(g));
    struct sp_hand *hand = &h->now[item];

    if (!before) {
        sp_hand_receive(g, st, hand, chunk, from, t, item,
                        home       ? SP_HAND_HOME
                        : gradient ? SP_HAND_GRADIENTS
                                   : SP_HAND_WEIGHTS);
        return;
    }
    advance(g, before, t);
    pass(g, before, item);
    sp_hand_share(inbox_of(h, item, t), hand);
    if (home)
        bring_home(g, st, hand, chunk);
}

/* Turn P: a worker begins the backward rings with what it is the first to have, weights from their
 * owners and gradients of zeros. */
static void set_out(struct sp_graph *g, struct sp_stage *st)
{
    for (int i = 1; i < SP_RING_ITEMS; i++) {
        struct sp_ring_item item = sp_ring_item(sp_graph_ring(g), st->index, st->hands->turn, i);
        int owner = sp_ring_owner(sp_graph_ring(g), item.chunk);
        struct sp_stage *local = sp_graph_stage(g, owner);
        struct sp_hand *hand = &st->hands->now[i];

        if (local)
            sp_hand_own(g, local, item.chunk, item.payload == SP_RING_GRADIENT, hand);
        else if (item.payload == SP_RING_BACKWARD)
            sp_hand_receive(g, st, hand, item.chunk, owner, -2, SP_RING_BACKWARD, SP_HAND_WEIGHTS);
        else
            sp_hand_clear(g, st, item.chunk, hand);
    }
}

/* Ends turns, ops or not, until turn t has come to a worker. */
static void advance(struct sp_graph *g, struct sp_stage *st, int t)
{
    struct sp_hands *h = st->hands;

    while (h->turn < t) {
        int now = h->turn;

        for (int i = 0; i < SP_RING_ITEMS && sp_graph_workers(g) > 1; i++) {
            pass(g, st, i);
            sp_hand_put(&h->now[i]);
        }
        for (int i = 0; i < SP_RING_ITEMS; i++) {
            if (goes_on(g, now, i))
                receive(g, st, now, i);
            h->passed[i] = false;
        }
        h->turn++;
        if (h->turn == sp_graph_workers(g))
            set_out(g, st);
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */

static int turn_of(const struct sp_graph *g, const struct sp_op *op)
{
    return sp_ring_turn(sp_graph_ring(g), op, op->mb / sp_graph_workers(g));
}

/* What a worker has of a chunk in this turn. */
static struct sp_hand *hand_of(struct sp_graph *g, struct sp_stage *st,
                               enum sp_ring_payload payload, int chunk)
{
    struct sp_hands *h = st->hands;

    for (int i = 0; i < SP_RING_ITEMS; i++) {
        struct sp_ring_item item = sp_ring_item(sp_graph_ring(g), st->index, h->turn, i);

        if (item.payload == payload && item.chunk == chunk)
            return &h->now[i];
    }
    STARPU_ABORT_MSG("starpipe: chunk %d did not come to worker %d in turn %d", chunk, st->index,
                     h->turn);
}

static void arrive(struct sp_graph *g, struct sp_stage *st, int index, struct sp_hand **weights,
                   struct sp_hand **gradients)
{
    const struct sp_op *op = sp_graph_op(g, st->index, index);

    advance(g, st, turn_of(g, op) + st->index);
    for (int i = 0; i < SP_RING_ITEMS; i++)
        if (!is_gradient(g, st->index, st->hands->turn, i))
            pass(g, st, i);
    if (sp_ring_wants_weights(op))
        *weights = hand_of(g, st, op->pass == SP_F ? SP_RING_FORWARD : SP_RING_BACKWARD, op->chunk);
    if (sp_ring_adds(g, st->index, op))
        *gradients = hand_of(g, st, SP_RING_GRADIENT, op->chunk);
}

/* Whether an op is the last of turn k that adds to gradients. */
static bool adds_last(const struct sp_ring *ring, int k, const struct sp_op *op)
{
    const struct sp_op *last = NULL;

    for (int i = ring->first[k]; i < ring->first[k + 1]; i++)
        if (ring->ops[i].pass != SP_F)
            last = &ring->ops[i];
    return last && last->pass == op->pass && last->chunk == op->chunk;
}

static void leave(struct sp_graph *g, struct sp_stage *st, int index)
{
    const struct sp_op *op = sp_graph_op(g, st->index, index);

    if (!adds_last(sp_graph_ring(g), turn_of(g, op), op))
        return;
    for (int i = 0; i < SP_RING_ITEMS; i++)
        if (is_gradient(g, st->index, st->hands->turn, i))
            pass(g, st, i);
}

/* Turns of workers without ops come along with those of the first or the last one, so that no more
 * of them are on their way than while all work. */
static void pass_by(struct sp_graph *g, int i)
{
    const struct sp_ring *ring = sp_graph_ring(g);
    int worker = g->order[i].stage;
    int t = turn_of(g, sp_graph_op(g, worker, g->order[i].index)) + worker;

    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        if ((worker == 0 && t <= st->index) ||
            (worker == sp_graph_workers(g) - 1 && t >= st->index + ring->turns))
            advance(g, st, t);
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* A chunk's weights, from its owner to a worker of another process, before turn 0. */
static void lend(struct sp_graph *g, int chunk, int to, int turn, int item)
{
    struct sp_stage *owner = sp_graph_stage(g, sp_ring_owner(sp_graph_ring(g), chunk));
    struct sp_hand *hand;

    if (!owner || sp_graph_stage(g, to))
        return;
    hand = &owner->hands->now[SP_RING_BACKWARD]; /* empty till turn P */
    sp_hand_own(g, owner, chunk, false, hand);
    sp_hand_send(g, owner, hand, to, turn, item, 0);
    hand->n = 0;
}

/* Gradients, from the workers that were the last to have them to their owners. */
static void give_back(struct sp_graph *g, int t)
{
    for (int r = 0; r < sp_graph_workers(g); r++)
        for (int i = 1; i < SP_RING_ITEMS; i++) {
            struct sp_ring_item item = sp_ring_item(sp_graph_ring(g), r, t, i);
            int to = sp_ring_owner(sp_graph_ring(g), item.chunk);
            struct sp_stage *owner = sp_graph_stage(g, to), *st = sp_graph_stage(g, r);
            struct sp_hand *hand = st ? &st->hands->now[i] : NULL;

            if (item.payload != SP_RING_GRADIENT)
                continue;
            if (owner && st) {
                bring_home(g, owner, hand, item.chunk);
            } else if (st) {
                sp_hand_hold(hand);
                sp_hand_send(g, st, hand, to, t, i, comes_at(g, to, t + 1));
            } else if (owner) {
                struct sp_hand *in = inbox_of(owner->hands, i, t);

                sp_hand_receive(g, owner, in, item.chunk, r, t, i, SP_HAND_HOME);
                in->n = 0;
            }
        }
}

/* Forward weights change places: every worker has the chunk of turn 0. Backward weights go to the
 * workers that are the first to have them. */
static void begin(struct sp_graph *g)
{
    const struct sp_ring *ring = sp_graph_ring(g);
    int P = sp_graph_workers(g);

    for (int r = 0; r < P; r++) {
        lend(g, sp_ring_forward(P, r, 0), r, -1, SP_RING_FORWARD);
        for (int i = 1; i < SP_RING_ITEMS; i++) {
            struct sp_ring_item item = sp_ring_item(ring, r, P, i);

            if (item.payload == SP_RING_BACKWARD)
                lend(g, item.chunk, r, -2, SP_RING_BACKWARD);
        }
    }
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        int chunk = sp_ring_forward(P, st->index, 0), owner = sp_ring_owner(ring, chunk);
        struct sp_hand *hand = &st->hands->now[SP_RING_FORWARD];

        st->hands->turn = 0;
        for (int i = 0; i < SP_RING_ITEMS; i++)
            st->hands->passed[i] = false;
        if (sp_graph_stage(g, owner))
            sp_hand_own(g, sp_graph_stage(g, owner), chunk, false, hand);
        else
            sp_hand_receive(g, st, hand, chunk, owner, -1, SP_RING_FORWARD, SP_HAND_WEIGHTS);
    }
}

/* Everything goes home. */
static void end(struct sp_graph *g)
{
    int last = sp_ring_last_backward(sp_graph_ring(g));

    for (int k = 0; k < g->place.n_local; k++)
        advance(g, &g->stages[k], last + 1);
    if (!sp_ring_comes_home(sp_graph_ring(g)) && sp_graph_workers(g) > 1)
        give_back(g, last + 1);
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < SP_RING_ITEMS; i++)
            sp_hand_put(&g->stages[k].hands->now[i]);
}

static int create(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_hands *h = calloc(1, sizeof *h);
    size_t cap = 2 * (size_t)sp_graph_workers(g) + 4, hands = SP_RING_ITEMS * (cap + 1);
    struct sp_hand *all;

    st->hands = h;
    if (!h)
        return -ENOMEM;
    h->cap = (int)cap;
    all = calloc(hands, sizeof *all);
    if (!all)
        return -ENOMEM;
    h->blocks = sp_hands_create(g, all, hands);
    for (int i = 0; i < SP_RING_ITEMS; i++)
        h->now[i] = all[SP_RING_ITEMS * cap + (size_t)i];
    h->inbox = all;
    return h->blocks ? 0 : -ENOMEM;
}

static void destroy(struct sp_stage *st)
{
    if (!st->hands)
        return;
    free(st->hands->inbox);
    free(st->hands->blocks);
    free(st->hands);
}

const struct sp_ring_flow sp_ring_around = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .end = end,
    .pass_by = pass_by,
    .arrive = arrive,
    .leave = leave,
};
