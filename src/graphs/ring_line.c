/*
 * Weights and gradients down the line of workers: an op computes with what the same op of the worker
 * before computed with. Worker 0 has weights from their owners and makes the gradients; the last worker
 * gives these to their owners, who add up those of all rounds.
 *
 * What an op leaves is handed over, or sent, when the op that wants it is submitted: so nothing is on
 * its way to ops that are not, and a step that was begun can be undone. The gradient of a chunk is whole
 * when what the last op makes of it has come home, long before the step ends: its owner closes it there
 * and then.
 */
#include "graphs/family.h"
#include "graphs/message.h"
#include "graphs/ring_flow.h"
#include "graphs/step.h"
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS, GRADIENTS, SEED };

/* What ops left for those of the next worker, by the place in the program: it is a turn late. */
enum { LEFT = 3 * SP_TURN_OPS };

struct sp_hands {
    struct sp_hand now[2];        /* of the op at work */
    struct sp_hand left[LEFT][2]; /* empty, or held */
    struct sp_hand home;          /* gradients from the last worker */
    starpu_data_handle_t *blocks;
};

static struct sp_stage *owner_of(struct sp_graph *g, int chunk)
{
    return sp_graph_stage(g, sp_ring_owner(sp_graph_ring(g), chunk));
}

static bool wants(const struct sp_graph *g, int worker, const struct sp_op *op, int kind)
{
    return kind == WEIGHTS ? sp_ring_wants_weights(op) : sp_ring_adds(g, worker, op);
}

/* What worker 0 begins with. */
static void set_out(struct sp_graph *g, struct sp_stage *st, int index, int kind)
{
    int chunk = sp_graph_op(g, 0, index)->chunk;
    struct sp_hand *hand = &st->hands->now[kind];
    struct sp_stage *owner = owner_of(g, chunk);

    if (kind == GRADIENTS)
        sp_hand_clear(g, st, chunk, hand);
    else if (owner)
        sp_hand_own(g, owner, chunk, false, hand);
    else
        sp_hand_receive(g, st, hand, chunk, sp_ring_owner(sp_graph_ring(g), chunk), index, SEED,
                        SP_HAND_WEIGHTS);
}

static void take(struct sp_graph *g, struct sp_stage *st, int index, int kind)
{
    int chunk = sp_graph_op(g, st->index, index)->chunk;
    struct sp_stage *before = st->index > 0 ? sp_graph_stage(g, st->index - 1) : NULL;
    struct sp_hand *left;

    if (st->index == 0) {
        set_out(g, st, index, kind);
    } else if (before) {
        left = &before->hands->left[index % LEFT][kind];
        sp_hand_share(left, &st->hands->now[kind]);
        left->n = 0;
    } else {
        sp_hand_receive(g, st, &st->hands->now[kind], chunk, st->index - 1, index, kind,
                        kind == GRADIENTS ? SP_HAND_GRADIENTS : SP_HAND_WEIGHTS);
    }
}

static void arrive(struct sp_graph *g, struct sp_stage *st, int index, struct sp_hand **weights,
                   struct sp_hand **gradients)
{
    struct sp_hand **const out[] = {weights, gradients};

    for (int kind = 0; kind < 2; kind++)
        if (wants(g, st->index, sp_graph_op(g, st->index, index), kind)) {
            take(g, st, index, kind);
            *out[kind] = &st->hands->now[kind];
        }
}

/* Whether no op of the last worker after this one, and so of none, has to do with the chunk. */
static bool is_last_of_chunk(const struct sp_graph *g, int index)
{
    const struct sp_program *prog = &g->cfg.plan->programs[sp_graph_workers(g) - 1];

    for (int k = index + 1; k < prog->n; k++)
        if (prog->ops[k].part == SP_CHUNK && prog->ops[k].chunk == prog->ops[index].chunk)
            return false;
    return true;
}

/* What the last worker's op makes whole of a chunk's gradient is added to its owner's. */
static void add_at_home(struct sp_graph *g, struct sp_stage *owner, const struct sp_hand *hand,
                        int index)
{
    const struct sp_op *op = sp_graph_op(g, sp_graph_workers(g) - 1, index);
    bool last = is_last_of_chunk(g, index);
    struct sp_lane lane = sp_stage_lane(g, owner, 'D');

    for (int i = 0; i < hand->n; i++) {
        struct sp_block *b = sp_ring_block(g, owner, op->chunk, i);

        lane.layer = b->layer;
        sp_sum_insert(&lane, SP_F32, b->g, hand->block[i], false);
        if (last)
            sp_step_close(g, owner, b);
    }
}

static void leave(struct sp_graph *g, struct sp_stage *st, int index)
{
    const struct sp_op *op = sp_graph_op(g, st->index, index);
    int last = sp_graph_workers(g) - 1;
    struct sp_stage *owner = owner_of(g, op->chunk);

    for (int kind = 0; kind < 2; kind++) {
        struct sp_hand *hand = &st->hands->now[kind];

        if (hand->n == 0)
            continue;
        if (st->index < last) {
            sp_hand_share(hand, &st->hands->left[index % LEFT][kind]);
            hand->n = 0;
        } else if (kind == WEIGHTS || owner) {
            if (kind == GRADIENTS)
                add_at_home(g, owner, hand, index);
            sp_hand_put(hand);
        } else {
            sp_hand_send(g, st, hand, sp_ring_owner(sp_graph_ring(g), op->chunk), index, GRADIENTS,
                         sp_op_position(g, last, op));
            hand->n = 0;
        }
    }
}

/* What this process has for an op of another. */
static void pass_by(struct sp_graph *g, int i)
{
    int worker = g->order[i].stage, index = g->order[i].index;
    const struct sp_op *op = sp_graph_op(g, worker, index);
    struct sp_stage *before = worker > 0 ? sp_graph_stage(g, worker - 1) : NULL;
    struct sp_stage *owner = op->part == SP_CHUNK ? owner_of(g, op->chunk) : NULL;

    if (sp_graph_stage(g, worker))
        return;
    for (int kind = 0; before && kind < 2; kind++) {
        struct sp_hand *left = &before->hands->left[index % LEFT][kind];

        if (!wants(g, worker, op, kind))
            continue;
        sp_hand_send(g, before, left, worker, index, kind, i);
        left->n = 0;
    }
    if (worker == 0 && owner && sp_ring_wants_weights(op)) {
        sp_hand_own(g, owner, op->chunk, false, &owner->hands->home);
        sp_hand_send(g, owner, &owner->hands->home, 0, index, SEED, i);
        owner->hands->home.n = 0;
    }
    if (worker == sp_graph_workers(g) - 1 && owner && sp_ring_adds(g, worker, op)) {
        sp_hand_receive(g, owner, &owner->hands->home, op->chunk, worker, index, GRADIENTS,
                        SP_HAND_GRADIENTS);
        add_at_home(g, owner, &owner->hands->home, index);
        sp_hand_put(&owner->hands->home);
    }
}

/* What forwards left for others that were not submitted. */
static void discard(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < LEFT; i++)
            sp_hand_put(&g->stages[k].hands->left[i][WEIGHTS]);
}

static int create(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_hands *h = calloc(1, sizeof *h);
    struct sp_hand all[2 * LEFT + 3];

    st->hands = h;
    if (!h)
        return -ENOMEM;
    h->blocks = sp_hands_create(g, all, 2 * LEFT + 3);
    if (!h->blocks)
        return -ENOMEM;
    memcpy(h->left, all, sizeof h->left);
    memcpy(h->now, all + 2 * LEFT, sizeof h->now);
    h->home = all[2 * LEFT + 2];
    return 0;
}

static void destroy(struct sp_stage *st)
{
    if (st->hands)
        free(st->hands->blocks);
    free(st->hands);
}

const struct sp_ring_flow sp_ring_line = {
    .create = create,
    .destroy = destroy,
    .pass_by = pass_by,
    .discard = discard,
    .arrive = arrive,
    .leave = leave,
};
