/*
 * The weight-ring family (WeiPipe): a worker keeps its micro-batches, and the chunks of the model
 * come by with the gradients of their weights; src/policies/ring.h says which when.
 *
 *   F(mb, c):  [embed]  { pre  attn  post } for each layer of chunk c, with weights that came by
 *   L(mb):     final norm, logits, loss, and their gradients
 *   B(mb, c):  { (recompute)  post.B attn.B pre.B  weight gradients } onto the gradients that came by
 *
 * Weights go on to the next worker as soon as a turn begins, gradients when its ops were submitted;
 * inside a process they are handed over as they are. A chunk's gradient sets out as the gradient of
 * its owner's blocks, zero, and comes home there. Embedding and head are on every worker: around the
 * ring they would cost 2(G+1) times their size a worker and step, their summed gradients cost 2.
 */
#include "graphs/family.h"
#include "graphs/chunk.h"
#include "graphs/message.h"
#include "policies/ring.h"
#include <stdlib.h>

/* The blocks of a chunk, three a layer; of a pool, or their owner's. */
struct hand {
    starpu_data_handle_t *block; /* [3 * layers of the largest chunk]; block[0] NULL: empty */
    bool pooled;
};

struct sp_hands {
    int turn;                       /* whose weights and gradients these are */
    bool passed[SP_RING_ITEMS];     /* on to the next worker, in this turn */
    struct hand now[SP_RING_ITEMS]; /* what the worker has, see sp_ring_item */
    struct hand *partial;           /* [chunks] gradients between B and W, where those are apart */
    int cap;                        /* turns that a worker may be ahead of the next one */
    struct hand *inbox; /* [SP_RING_ITEMS][cap] from the worker before, of this process, by turn */
    starpu_data_handle_t *blocks;
};

/* ---- chunks ------------------------------------------------------------------------------ */

static const struct sp_ring *ring_of(const struct sp_graph *g)
{
    return g->cfg.plan->layout.map->ring;
}

static int workers(const struct sp_graph *g)
{
    return g->place.stages;
}

static void layers_of(const struct sp_graph *g, int chunk, int *first, int *count)
{
    sp_part_layers(g->cfg.plan, g->shape.model.layers, workers(g), chunk, first, count);
}

static int blocks_of(const struct sp_graph *g, int chunk)
{
    int first, count;

    layers_of(g, chunk, &first, &count);
    return 3 * count;
}

/* The owner's own blocks of a chunk: weights, or gradients. */
static void own_blocks(const struct sp_graph *g, struct sp_stage *owner, int chunk, bool gradient,
                       struct hand *hand)
{
    int first, count;

    layers_of(g, chunk, &first, &count);
    for (int i = 0; i < 3 * count; i++) {
        struct sp_block *b =
            sp_stage_block(owner, (enum sp_block_kind)(SP_BLOCK_NORM1 + i % 3), first + i / 3);

        hand->block[i] = gradient ? b->g : b->w;
    }
    hand->pooled = false;
}

static void empty(const struct sp_graph *g, struct hand *hand, int chunk)
{
    for (int i = 0; hand->block[0] && hand->pooled && i < blocks_of(g, chunk); i++)
        sp_pool_put(hand->block[i]);
    hand->block[0] = NULL;
}

/* ---- passing on ---------------------------------------------------------------------------- */

static int chunk_at(const struct sp_graph *g, int r, int t, int item)
{
    return sp_ring_item(ring_of(g), r, t, item).chunk;
}

static bool is_gradient(const struct sp_graph *g, int r, int t, int item)
{
    return sp_ring_item(ring_of(g), r, t, item).payload == SP_RING_GRADIENT;
}

/* Whether what a worker has in turn t goes on to the next one. */
static bool goes_on(const struct sp_graph *g, int t, int item)
{
    if (workers(g) == 1)
        return false;
    return item == 0 ? t >= 0 && t <= sp_ring_last_forward(ring_of(g))
                     : t >= workers(g) && t <= sp_ring_last_backward(ring_of(g));
}

static int64_t tag_of(const struct sp_graph *g, int turn, int from, int ring, int block)
{
    int64_t all = 3 * (int64_t)g->shape.model.layers;

    return sp_tag(g, SP_MSG_RING, turn + 2, ((int64_t)from * SP_RING_ITEMS + ring) * all + block);
}

/* The place in the order of the first op of a worker in turn t or later, -1: it has none. */
static int place_of_turn(const struct sp_graph *g, int worker, int t)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_ring *ring = ring_of(g);
    int k = t > worker ? t - worker : 0;

    while (k < ring->turns && ring->first[k] == ring->first[k + 1])
        k++;
    if (k >= ring->turns)
        return -1;
    return g->position[plan->family->id(&plan->layout, worker,
                                        &plan->programs[worker].ops[ring->first[k]])];
}

/*
 * Where in the order turn t comes to a worker: with its own op, or, while it has not begun or is
 * done, along with the op of worker 0 or P - 1, which are the first to begin and the last to end.
 */
static int comes_at(const struct sp_graph *g, int worker, int t)
{
    int last = workers(g) - 1, at;

    if (t < worker)
        return place_of_turn(g, 0, t);
    at = place_of_turn(g, worker, t);
    at = at >= 0 ? at : place_of_turn(g, last, t);
    return at >= 0 ? at : g->n_order - 1;
}

static void send_hand(struct sp_graph *g, struct sp_stage *st, struct hand *hand, int chunk, int to,
                      int t, int ring)
{
    for (int i = 0; i < blocks_of(g, chunk); i++) {
        int64_t tag = tag_of(g, t, st->index, ring, i);

        if (hand->pooled)
            sp_message_send(g, st, hand->block[i], to, tag, comes_at(g, to, t + 1));
        else
            sp_message_send_block(g, st, hand->block[i], to, tag);
    }
}

static struct hand *inbox_of(struct sp_hands *h, int ring, int t)
{
    return &h->inbox[ring * h->cap + t % h->cap];
}

/* The worker's part of a ring in its turn, to the next worker. Weights of a pool are held while the
 * turn lasts; a gradient leaves for good. */
static void pass(struct sp_graph *g, struct sp_stage *st, int ring)
{
    struct sp_hands *h = st->hands;
    int to = (st->index + 1) % workers(g), chunk = chunk_at(g, st->index, h->turn, ring);
    struct sp_stage *next = sp_graph_stage(g, to);
    struct hand *hand = &h->now[ring];

    if (h->passed[ring] || !goes_on(g, h->turn, ring))
        return;
    h->passed[ring] = true;
    if (hand->pooled)
        for (int i = 0; i < blocks_of(g, chunk); i++)
            sp_pool_hold(hand->block[i]);
    if (next) {
        struct hand *in = inbox_of(next->hands, ring, h->turn);

        for (int i = 0; i < blocks_of(g, chunk); i++)
            in->block[i] = hand->block[i];
        in->pooled = hand->pooled;
    } else {
        send_hand(g, st, hand, chunk, to, h->turn, ring);
    }
}

static struct sp_lane ring_lane(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_lane lane = sp_stage_lane(g, st, 'D');

    lane.layer = -1;
    return lane;
}

/* Receives a chunk's blocks into buffers of a pool, or into the owner's own. */
static void receive_hand(struct sp_graph *g, struct sp_stage *st, struct hand *hand, int chunk,
                         int from, int t, int ring, bool home)
{
    struct sp_lane lane = ring_lane(g, st);

    if (home)
        own_blocks(g, st, chunk, true, hand);
    for (int i = 0; i < blocks_of(g, chunk); i++) {
        size_t n = sp_block_elements(&g->shape.model, (enum sp_block_kind)(SP_BLOCK_NORM1 + i % 3));

        if (!home)
            hand->block[i] = sp_pool_get(st->boundary, n, sizeof(float), "chunk");
        sp_message_receive(g, &lane, hand->block[i], from, tag_of(g, t, from, ring, i));
    }
    hand->pooled = !home;
}

/* Buffers for the gradient of a chunk, of zeros. */
static void take_zeros(struct sp_graph *g, struct sp_stage *st, int chunk, struct hand *hand)
{
    struct sp_lane lane = ring_lane(g, st);

    for (int i = 0; i < blocks_of(g, chunk); i++) {
        size_t n = sp_block_elements(&g->shape.model, (enum sp_block_kind)(SP_BLOCK_NORM1 + i % 3));

        hand->block[i] = sp_pool_get(st->boundary, n, sizeof(float), "chunk");
        sp_clear_insert(&lane, hand->block[i]);
    }
    hand->pooled = true;
}

/* Gradients that were handed over in this process but have been elsewhere come home. */
static void bring_home(struct sp_graph *g, struct sp_stage *st, struct hand *hand, int chunk)
{
    struct sp_lane lane = ring_lane(g, st);
    int first, count;

    layers_of(g, chunk, &first, &count);
    for (int i = 0; hand->pooled && i < 3 * count; i++) {
        lane.layer = first + i / 3;
        sp_copy_insert(
            &lane, hand->block[i],
            sp_stage_block(st, (enum sp_block_kind)(SP_BLOCK_NORM1 + i % 3), lane.layer)->g);
    }
}

static void advance(struct sp_graph *g, struct sp_stage *st, int t);

/* What the worker before passed on after turn t: for turn t + 1. */
static void receive(struct sp_graph *g, struct sp_stage *st, int t, int ring)
{
    struct sp_hands *h = st->hands;
    int from = (st->index + workers(g) - 1) % workers(g);
    int chunk = chunk_at(g, from, t, ring);
    struct sp_stage *before = sp_graph_stage(g, from);
    bool home = sp_ring_comes_home(ring_of(g)) && is_gradient(g, from, t, ring) &&
                t == sp_ring_last_backward(ring_of(g));
    struct hand *hand = &h->now[ring], *in;

    if (!before) {
        receive_hand(g, st, hand, chunk, from, t, ring, home);
        return;
    }
    advance(g, before, t);
    pass(g, before, ring);
    in = inbox_of(h, ring, t);
    for (int i = 0; i < blocks_of(g, chunk); i++)
        hand->block[i] = in->block[i];
    hand->pooled = in->pooled;
    if (home)
        bring_home(g, st, hand, chunk);
}

/* Turn P: a worker begins the backward rings with what it is the first to have, weights from their
 * owners and gradients of zeros. */
static void set_out(struct sp_graph *g, struct sp_stage *st)
{
    int P = workers(g), t = st->hands->turn;

    for (int i = 1; i < SP_RING_ITEMS; i++) {
        struct sp_ring_item item = sp_ring_item(ring_of(g), st->index, t, i);
        int owner = sp_ring_owner(P, item.chunk);
        struct sp_stage *local = sp_graph_stage(g, owner);
        struct hand *hand = &st->hands->now[i];

        if (local)
            own_blocks(g, local, item.chunk, item.payload == SP_RING_GRADIENT, hand);
        else if (item.payload == SP_RING_BACKWARD)
            receive_hand(g, st, hand, item.chunk, owner, -2, SP_RING_BACKWARD, false);
        else
            take_zeros(g, st, item.chunk, hand);
    }
}

/* Ends turns, ops or not, until turn t has come to a worker. */
static void advance(struct sp_graph *g, struct sp_stage *st, int t)
{
    struct sp_hands *h = st->hands;

    while (h->turn < t) {
        int now = h->turn;

        for (int ring = 0; ring < SP_RING_ITEMS && workers(g) > 1; ring++) {
            pass(g, st, ring);
            empty(g, &h->now[ring], chunk_at(g, st->index, now, ring));
        }
        for (int ring = 0; ring < SP_RING_ITEMS; ring++) {
            if (goes_on(g, now, ring))
                receive(g, st, now, ring);
            h->passed[ring] = false;
        }
        h->turn++;
        if (h->turn == workers(g))
            set_out(g, st);
    }
}

/* ---- ops ----------------------------------------------------------------------------------- */

static struct sp_chunk_flight *flight(const struct sp_op_ctx *c, int chunk)
{
    int rounds = ring_of(c->g)->rounds;

    return &c->st->flights[chunk * rounds + c->mb / workers(c->g)];
}

/* The weight gradients of a chunk beside those of its norms, which B left, and all to what came by. */
static void chunk_wgrad(struct sp_op_ctx *c, int chunk, const struct hand *came_by)
{
    struct hand *partial = &c->st->hands->partial[chunk];

    for (int i = c->count - 1; i >= 0; i--)
        sp_layer_wgrad(c, i);
    for (int i = 0; i < 3 * c->count; i++) {
        c->lane.layer = c->first + i / 3;
        sp_sum_insert(&c->lane, came_by->block[i], partial->block[i], false);
    }
    empty(c->g, partial, chunk);
    if (chunk == 0)
        sp_chunk_embed_gradient(c, c->mb, &c->fl->grad);
}

/* What a worker has of a chunk in this turn. */
static struct hand *hand_of(struct sp_op_ctx *c, enum sp_ring_payload payload, int chunk)
{
    struct sp_hands *h = c->st->hands;

    for (int i = 0; i < SP_RING_ITEMS; i++) {
        struct sp_ring_item item = sp_ring_item(ring_of(c->g), c->st->index, h->turn, i);

        if (item.payload == payload && item.chunk == chunk)
            return &h->now[i];
    }
    STARPU_ABORT_MSG("starpipe: chunk %d did not come to worker %d in turn %d", chunk, c->st->index,
                     h->turn);
}

static void expand(struct sp_op_ctx *c, const struct sp_op *op)
{
    int last = workers(c->g) - 1;
    struct hand *partial;

    if (op->part == SP_HEAD) {
        c->fl = flight(c, last);
        c->fl->grad = sp_take_hidden(c, "dx");
        sp_chunk_head(c, c->mb, c->fl->grad);
        return;
    }
    switch (op->pass) {
    case SP_F:
        c->w = hand_of(c, SP_RING_FORWARD, op->chunk)->block;
        sp_chunk_forward(c, op->chunk < last ? flight(c, op->chunk + 1) : NULL);
        break;
    case SP_B:
        c->w = hand_of(c, SP_RING_BACKWARD, op->chunk)->block;
        partial = &c->st->hands->partial[op->chunk];
        if (c->split)
            take_zeros(c->g, c->st, op->chunk, partial);
        c->gradient = c->split ? partial->block : hand_of(c, SP_RING_GRADIENT, op->chunk)->block;
        sp_chunk_backward(c, op->chunk > 0 ? flight(c, op->chunk - 1) : NULL);
        break;
    case SP_W:
        c->gradient = c->st->hands->partial[op->chunk].block;
        chunk_wgrad(c, op->chunk, hand_of(c, SP_RING_GRADIENT, op->chunk));
        break;
    }
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

static void submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W'};
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_ring *ring = ring_of(g);
    const struct sp_op *op = &plan->programs[st->index].ops[index];
    int k = sp_ring_turn(ring, op, op->mb / workers(g));
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->shape,
        .lane = sp_stage_lane(g, st, passes[op->pass]),
        .mb = op->mb,
        .split = op->pass == SP_B && !sp_op_releases(plan, st->index, op),
    };

    advance(g, st, k + st->index);
    for (int i = 0; i < SP_RING_ITEMS; i++)
        if (!is_gradient(g, st->index, st->hands->turn, i))
            pass(g, st, i);
    c.lane.op_index = index;
    c.lane.mb = op->mb;
    c.lane.op = sp_window_open(g->window);
    layers_of(g, op->chunk, &c.first, &c.count);
    c.fl = flight(&c, op->chunk);
    expand(&c, op);
    sp_window_close(c.lane.op);
    if (adds_last(ring, k, op))
        for (int i = 0; i < SP_RING_ITEMS; i++)
            if (is_gradient(g, st->index, st->hands->turn, i))
                pass(g, st, i);
}

/* Turns of workers without ops come along with those of the first or the last one, so that no more
 * of them are on their way than while all work. */
static void pass_by(struct sp_graph *g, int i)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_ring *ring = ring_of(g);
    int worker = g->order[i].stage;
    const struct sp_op *op = &plan->programs[worker].ops[g->order[i].index];
    int t = sp_ring_turn(ring, op, op->mb / workers(g)) + worker;

    sp_message_release(g, i);
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        if ((worker == 0 && t <= st->index) ||
            (worker == workers(g) - 1 && t >= st->index + ring->turns))
            advance(g, st, t);
    }
}

/* ---- the step ------------------------------------------------------------------------------ */

/* Backward weights, to the workers that are the first to have them and are not their owners. */
static void lend(struct sp_graph *g)
{
    int P = workers(g);

    for (int r = 0; r < P; r++)
        for (int i = 1; i < SP_RING_ITEMS; i++) {
            struct sp_ring_item item = sp_ring_item(ring_of(g), r, P, i);
            struct sp_stage *owner = sp_graph_stage(g, sp_ring_owner(P, item.chunk));
            struct hand *mine;

            if (item.payload != SP_RING_BACKWARD || !owner || sp_graph_stage(g, r))
                continue;
            mine = &owner->hands->now[SP_RING_BACKWARD]; /* empty till turn P */
            own_blocks(g, owner, item.chunk, false, mine);
            send_hand(g, owner, mine, item.chunk, r, -2, SP_RING_BACKWARD);
            mine->block[0] = NULL;
        }
}

/* Gradients, from the workers that were the last to have them to their owners. */
static void give_back(struct sp_graph *g, int t)
{
    int P = workers(g);

    for (int r = 0; r < P; r++)
        for (int i = 1; i < SP_RING_ITEMS; i++) {
            struct sp_ring_item item = sp_ring_item(ring_of(g), r, t, i);
            int to = sp_ring_owner(P, item.chunk);
            struct sp_stage *owner = sp_graph_stage(g, to), *st = sp_graph_stage(g, r);
            struct hand *hand = st ? &st->hands->now[i] : NULL;

            if (item.payload != SP_RING_GRADIENT)
                continue;
            if (owner && st) {
                bring_home(g, owner, hand, item.chunk);
            } else if (st) {
                for (int k = 0; hand->pooled && k < blocks_of(g, item.chunk); k++)
                    sp_pool_hold(hand->block[k]);
                send_hand(g, st, hand, item.chunk, to, t, i);
            } else if (owner) {
                receive_hand(g, owner, &owner->hands->partial[item.chunk], item.chunk, r, t, i,
                             true);
                owner->hands->partial[item.chunk].block[0] = NULL;
            }
        }
}

/* Forward weights change places: every worker has the chunk of turn 0. */
static void begin(struct sp_graph *g)
{
    int P = workers(g);

    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        int own = sp_ring_chunk_of(P, st->index), partner = ((1 - st->index) % P + P) % P;

        st->hands->turn = 0;
        for (int ring = 0; ring < SP_RING_ITEMS; ring++)
            st->hands->passed[ring] = false;
        if (P > 1 && !sp_graph_stage(g, partner)) {
            struct hand *mine = &st->hands->now[SP_RING_BACKWARD]; /* empty till turn P */

            own_blocks(g, st, own, false, mine);
            send_hand(g, st, mine, own, partner, -1, SP_RING_FORWARD);
            mine->block[0] = NULL;
        }
    }
    lend(g);
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        int chunk = sp_ring_forward(P, st->index, 0), owner = sp_ring_owner(P, chunk);
        struct hand *hand = &st->hands->now[SP_RING_FORWARD];

        if (sp_graph_stage(g, owner))
            own_blocks(g, sp_graph_stage(g, owner), chunk, false, hand);
        else
            receive_hand(g, st, hand, chunk, owner, -1, SP_RING_FORWARD, false);
    }
}

/* Everything goes home. */
static void end(struct sp_graph *g)
{
    int last = sp_ring_last_backward(ring_of(g));

    for (int k = 0; k < g->place.n_local; k++)
        advance(g, &g->stages[k], last + 1);
    if (!sp_ring_comes_home(ring_of(g)) && workers(g) > 1)
        give_back(g, last + 1);
    for (int k = 0; k < g->place.n_local; k++)
        for (int ring = 0; ring < SP_RING_ITEMS; ring++)
            empty(g, &g->stages[k].hands->now[ring],
                  chunk_at(g, g->stages[k].index, last + 1, ring));
}

static int add_hands(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_hands *h = calloc(1, sizeof *h);
    size_t most = 0, hands, cap = 2 * (size_t)workers(g) + 4;

    st->hands = h;
    if (!h)
        return -ENOMEM;
    for (int c = 0; c < workers(g); c++)
        most = (size_t)blocks_of(g, c) > most ? (size_t)blocks_of(g, c) : most;
    hands = SP_RING_ITEMS * (cap + 1) + (size_t)workers(g);
    h->cap = (int)cap;
    h->inbox = calloc(SP_RING_ITEMS * cap + (size_t)workers(g), sizeof *h->inbox);
    h->blocks = calloc(hands * most, sizeof *h->blocks);
    if (!h->inbox || !h->blocks)
        return -ENOMEM;
    h->partial = h->inbox + SP_RING_ITEMS * cap;
    for (size_t i = 0; i < hands; i++) {
        struct hand *hand = i < SP_RING_ITEMS ? &h->now[i] : &h->inbox[i - SP_RING_ITEMS];

        hand->block = h->blocks + i * most;
    }
    return 0;
}

static int create(struct sp_graph *g)
{
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        err = add_hands(g, &g->stages[k]);
        err = err ? err : sp_flights_create(g, &g->stages[k], workers(g), ring_of(g)->rounds);
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        sp_flights_destroy(st);
        if (st->hands) {
            free(st->hands->inbox);
            free(st->hands->blocks);
        }
        free(st->hands);
    }
}

const struct sp_graph_family sp_graph_weight_ring = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .end = end,
    .pass_by = pass_by,
    .submit = submit,
};
