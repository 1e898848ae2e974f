/*
 * Weights and gradients around the ring as actions; ring.h says which worker has what in which turn. Weights
 * go on to the next worker as soon as a turn begins, gradients when its ops were submitted. A chunk's
 * gradient sets out as zeros and comes home to its owner.
 *
 * Every worker is in a turn of its own; turns without ops of a worker come along with those of the first
 * worker, before it has begun, or of the last one, when it is done, so that no more of them are on their way
 * than while all work.
 */
#include "policies/families/weight_ring/actions.h"
#include <errno.h>
#include <stdlib.h>

struct turn {
    int now;
    bool passed[SP_RING_ITEMS]; /* on to the next worker, in this turn */
};

static struct turn *turn_of(const struct sp_lowering *l, int worker)
{
    return &((struct turn *)l->state)[worker];
}

static int workers(const struct sp_lowering *l)
{
    return l->plan->layout.stages;
}

static struct sp_ring_item item_of(const struct sp_lowering *l, int worker, int t, int item)
{
    return sp_ring_item(sp_lowering_ring(l), worker, t, item);
}

static struct sp_tensor_id tensor_of(struct sp_ring_item item)
{
    static const unsigned char kinds[] = {[SP_RING_FORWARD] = SP_TENSOR_W,
                                          [SP_RING_BACKWARD] = SP_TENSOR_WB,
                                          [SP_RING_GRADIENT] = SP_TENSOR_D};

    return (struct sp_tensor_id){.kind = kinds[item.payload], .mb = -1, .at = item.chunk};
}

/* The first or the last op of a worker's turn that computes with an item or adds to it, in its program; -1:
 * none does. */
static int user_of(const struct sp_lowering *l, int worker, int t, struct sp_ring_item item,
                   bool last)
{
    const struct sp_ring *ring = sp_lowering_ring(l);
    int k = t - worker, user = -1;

    for (int i = ring->first[k < 0 || k >= ring->turns ? ring->turns : k];
         k >= 0 && k < ring->turns && i < ring->first[k + 1]; i++) {
        struct sp_op op = ring->ops[i];
        bool uses = item.payload == SP_RING_GRADIENT
                        ? op.pass != SP_F
                        : (op.pass == SP_F) == (item.payload == SP_RING_FORWARD);

        op.mb = op.mb * workers(l) + worker;
        uses = uses && op.mb < l->plan->layout.micro_batches && op.chunk == item.chunk &&
               (item.payload == SP_RING_GRADIENT ? sp_ring_adds(l->plan, worker, &op)
                                                 : sp_ring_wants_weights(&op));
        if (uses && (user < 0 || last))
            user = l->order[sp_lowering_position(l, worker, &op)].index;
    }
    return user;
}

/* What a worker has in turn t goes on to the next one. */
static bool goes_on(const struct sp_lowering *l, int t, int item)
{
    const struct sp_ring *ring = sp_lowering_ring(l);

    if (workers(l) == 1)
        return false;
    return item == 0 ? t >= 0 && t <= sp_ring_last_forward(ring)
                     : t >= workers(l) && t <= sp_ring_last_backward(ring);
}

/* Whether a worker has this item in turn t at all; a gradient that came home is its owner's. */
static bool has(const struct sp_lowering *l, int worker, int t, int item)
{
    const struct sp_ring *ring = sp_lowering_ring(l);
    int last = item == 0 ? sp_ring_last_forward(ring) : sp_ring_last_backward(ring);

    if (t > last && sp_ring_returns(ring) &&
        item_of(l, worker, t, item).payload == SP_RING_GRADIENT)
        return false;
    return (item == 0 || t >= workers(l)) && (t <= last + 1 || workers(l) == 1);
}

static void pass(struct sp_lowering *l, int worker, int item)
{
    struct turn *t = turn_of(l, worker);
    struct sp_ring_item what = item_of(l, worker, t->now, item);
    bool gradient = what.payload == SP_RING_GRADIENT;

    if (t->passed[item] || !goes_on(l, t->now, item))
        return;
    t->passed[item] = true;
    sp_lower_send(l, worker, (worker + 1) % workers(l), tensor_of(what),
                  gradient ? user_of(l, worker, t->now, what, true) : -1);
}

static void advance(struct sp_lowering *l, int worker, int t);

/* A gradient comes home to its owner: into those of his blocks, or, rounded on its way, it is added to them. */
static void return_to_owner(struct sp_lowering *l, int from, int owner,
                            struct sp_tensor_id gradient)
{
    if (!sp_rounds_gradients(l->plan, l->shape)) {
        sp_lower_recv_owner(l, from, owner, gradient);
        return;
    }
    sp_lower_recv(l, from, owner, gradient, -1);
    sp_lower_add(l, owner, gradient);
    sp_lower_free(l, owner, gradient);
}

/* What the worker before passed on after turn t, for turn t + 1. */
static void receive(struct sp_lowering *l, int worker, int t, int item)
{
    int from = (worker + workers(l) - 1) % workers(l);
    struct sp_ring_item what = item_of(l, from, t, item);
    const struct sp_ring *ring = sp_lowering_ring(l);
    bool returns = what.payload == SP_RING_GRADIENT && sp_ring_returns(ring) &&
                   t == sp_ring_last_backward(ring);

    advance(l, from, t);
    pass(l, from, item);
    if (returns)
        return_to_owner(l, from, worker, tensor_of(what));
    else
        sp_lower_recv(l, from, worker, tensor_of(what), user_of(l, worker, t + 1, what, false));
    if (turn_of(l, from)->now > t)
        sp_lower_free(l, from, tensor_of(what));
}

/* A chunk's weights, from its owner to the first worker that has them. */
static void share(struct sp_lowering *l, int worker, struct sp_ring_item item)
{
    int owner = sp_ring_owner(sp_lowering_ring(l), item.chunk);

    if (owner != worker)
        sp_lower_send(l, owner, worker, tensor_of(item), -1);
}

static void take_shared(struct sp_lowering *l, int worker, int t, struct sp_ring_item item)
{
    int owner = sp_ring_owner(sp_lowering_ring(l), item.chunk);

    if (owner != worker)
        sp_lower_recv(l, owner, worker, tensor_of(item), user_of(l, worker, t, item, false));
}

/* Turn P: a worker begins the backward rings with what it is the first to have. */
static void set_out(struct sp_lowering *l, int worker)
{
    int now = turn_of(l, worker)->now;

    for (int i = 1; i < SP_RING_ITEMS; i++) {
        struct sp_ring_item item = item_of(l, worker, now, i);

        if (item.payload == SP_RING_BACKWARD)
            take_shared(l, worker, now, item);
    }
}

/* A worker needs what it had in turn `now` no more; what it passed on is there until it was received. */
static void drop(struct sp_lowering *l, int worker, int now, int item)
{
    int next = (worker + 1) % workers(l);

    if (has(l, worker, now, item) && (!goes_on(l, now, item) || turn_of(l, next)->now > now))
        sp_lower_free(l, worker, tensor_of(item_of(l, worker, now, item)));
}

/* Ends turns, ops or not, until turn t has come to a worker. */
static void advance(struct sp_lowering *l, int worker, int t)
{
    struct turn *turn = turn_of(l, worker);

    while (turn->now < t) {
        int now = turn->now;

        for (int i = 0; i < SP_RING_ITEMS && workers(l) > 1; i++) {
            pass(l, worker, i);
            drop(l, worker, now, i);
        }
        for (int i = 0; i < SP_RING_ITEMS; i++) {
            if (goes_on(l, now, i))
                receive(l, worker, now, i);
            turn->passed[i] = false;
        }
        turn->now++;
        if (turn->now == workers(l))
            set_out(l, worker);
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */

static int ring_turn(const struct sp_lowering *l, const struct sp_op *op)
{
    return sp_ring_turn(sp_lowering_ring(l), op, op->mb / workers(l));
}

/* Whether an op is the last of its turn that adds to gradients. */
static bool adds_last(const struct sp_ring *ring, int k, const struct sp_op *op)
{
    const struct sp_op *last = NULL;

    for (int i = ring->first[k]; i < ring->first[k + 1]; i++)
        if (ring->ops[i].pass != SP_F)
            last = &ring->ops[i];
    return last && last->pass == op->pass && last->chunk == op->chunk;
}

static void pass_all(struct sp_lowering *l, int worker, bool gradients)
{
    for (int i = 0; i < SP_RING_ITEMS; i++)
        if ((item_of(l, worker, turn_of(l, worker)->now, i).payload == SP_RING_GRADIENT) ==
            gradients)
            pass(l, worker, i);
}

/* Workers that have not begun when the first one is in turn t, or are done when the last one is. */
static void advance_idle(struct sp_lowering *l, int worker, int t)
{
    int last = workers(l) - 1, turns = sp_lowering_ring(l)->turns;

    if (worker != 0 && worker != last)
        return;
    for (int r = 0; r <= last; r++)
        if ((worker == 0 && t <= r) || (worker == last && t >= r + turns))
            advance(l, r, t);
}

void sp_ring_around_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int worker = l->order[i].stage, k = ring_turn(l, op), t = k + worker;

    advance_idle(l, worker, t);
    advance(l, worker, t);
    pass_all(l, worker, false);
    sp_lower_run(l, worker, l->order[i].index);
    if (adds_last(sp_lowering_ring(l), k, op))
        pass_all(l, worker, true);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Forward weights change places: every worker has the chunk of turn 0. Backward weights are on their way to
 * the workers that are the first to have them. */
int sp_ring_around_lower_begin(struct sp_lowering *l)
{
    int P = workers(l);

    free(l->state);
    l->state = calloc((size_t)P, sizeof(struct turn));
    if (!l->state)
        return -ENOMEM;
    for (int r = 0; r < P; r++)
        for (int i = 0; i < SP_RING_ITEMS; i++) {
            struct sp_ring_item item = item_of(l, r, i ? P : 0, i);

            if (item.payload != SP_RING_GRADIENT)
                share(l, r, item);
        }
    for (int r = 0; r < P; r++)
        take_shared(l, r, 0, item_of(l, r, 0, 0));
    return 0;
}

/* Gradients, from the workers that were the last to have them to their owners. */
static void give_back(struct sp_lowering *l, int worker, struct sp_ring_item item)
{
    int owner = sp_ring_owner(sp_lowering_ring(l), item.chunk);

    if (owner == worker) {
        sp_lower_add(l, owner, tensor_of(item));
        return;
    }
    sp_lower_send(l, worker, owner, tensor_of(item), -1);
    return_to_owner(l, worker, owner, tensor_of(item));
}

void sp_ring_around_lower_end(struct sp_lowering *l)
{
    int last = sp_ring_last_backward(sp_lowering_ring(l)) + 1;

    for (int r = 0; r < workers(l); r++)
        advance(l, r, last);
    for (int r = 0; r < workers(l); r++)
        for (int i = 0; i < SP_RING_ITEMS; i++) {
            struct sp_ring_item item = item_of(l, r, last, i);

            if (!has(l, r, last, i))
                continue;
            if (item.payload == SP_RING_GRADIENT && !sp_ring_returns(sp_lowering_ring(l)) &&
                workers(l) > 1)
                give_back(l, r, item);
            sp_lower_free(l, r, tensor_of(item));
        }
}
