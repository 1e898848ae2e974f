#include "graphs/families/ring_gradients.h"
#include "graphs/layer/layer.h"
#include "graphs/step.h"
#include "policies/families/weight_ring/line.h"
#include "sp_error.h"
#include <stdlib.h>

static int workers(const struct sp_graph *g)
{
    return g->place.stages;
}

static bool is_line(const struct sp_graph *g)
{
    return sp_graph_ring(g)->layout == SP_RING_LINE;
}

struct sp_tensor_id sp_ring_passing(const struct sp_graph *g, enum sp_tensor_kind kind, int mb,
                                    int chunk)
{
    if (is_line(g) && kind == SP_TENSOR_D)
        return sp_line_gradient(&g->cfg.plan->layout, mb % workers(g), mb, chunk);
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .mb = is_line(g) ? mb / workers(g) : -1, .at = chunk};
}

static bool rounds(const struct sp_graph *g)
{
    return sp_rounds_gradients(g->cfg.plan, &g->shape);
}

static bool keeps_apart(const struct sp_graph *g)
{
    return sp_ring_keeps_apart(g->cfg.plan, &g->shape);
}

/* A gradient that sets out: as zeros; around the ring in f32 as that of its owner's blocks, which is zero, if these are
 * in this process. */
static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_stage *owner =
        is_line(g) || rounds(g) ? NULL : sp_graph_stage(g, sp_ring_owner(sp_graph_ring(g), id->at));
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    struct sp_tensor **piece = calloc((size_t)n, sizeof *piece);
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');

    SP_NEED(piece, "no memory for a gradient of %d parts", n);
    for (int i = 0; i < n; i++) {
        size_t bytes, elements = sp_tensor_piece(g->cfg.plan, &g->shape, id, i, &bytes);

        ctx.layer = sp_tensor_block(g->cfg.plan, &g->shape, id, i).layer;
        piece[i] = owner ? sp_stage_piece(g, owner, id, i)
                         : sp_pool_get(st->boundary, elements, bytes, "chunk");
        if (!owner)
            sp_clear_insert(&ctx, piece[i]);
    }
    sp_store_put(&st->store, id, n, piece, !owner);
    free(piece);
}

void sp_ring_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    if (id->kind == SP_TENSOR_D && !sp_store_find(&st->store, id))
        make(g, st, id);
}

/* What travels of the gradient that an op adds to. */
static const struct sp_stored *travelling(struct sp_op_ctx *c, const struct sp_op *op)
{
    struct sp_tensor_id id = sp_ring_passing(c->g, SP_TENSOR_D, op->mb, op->chunk);

    sp_ring_make(c->g, c->st, &id);
    return sp_store_find(&c->st->store, &id);
}

/* The blocks of an op's chunk are the worker's own. */
static bool is_owner(const struct sp_op_ctx *c, int chunk)
{
    return sp_ring_owner(sp_graph_ring(c->g), chunk) == c->st->index;
}

/* An op of the owner adds to his own gradients. Around the ring in f32 these are what travels. */
static bool adds_at_owner(const struct sp_op_ctx *c, int chunk)
{
    return is_owner(c, chunk) && (is_line(c->g) || keeps_apart(c->g));
}

struct sp_tensor *const *sp_ring_gradients_begin(struct sp_op_ctx *c, const struct sp_op *op,
                                                 struct sp_tensor **own)
{
    struct sp_tensor_id id = sp_ring_passing(c->g, SP_TENSOR_D, op->mb, op->chunk);
    bool returns = adds_at_owner(c, op->chunk);
    size_t bytes;

    if (!returns && !keeps_apart(c->g))
        return travelling(c, op)->piece;
    for (int i = 0; i < SP_LAYER_BLOCKS * c->count; i++) {
        if (returns) {
            own[i] = sp_stage_piece(c->g, c->st, &id, i);
            continue;
        }
        c->ctx.layer = c->first + i / SP_LAYER_BLOCKS;
        own[i] =
            sp_pool_get(c->st->local, sp_tensor_piece(c->g->cfg.plan, &c->g->shape, &id, i, &bytes),
                        sizeof(float), "own");
        sp_clear_insert(&c->ctx, own[i]);
    }
    return own;
}

/* Other bits for every block, worker, round and step, whatever the processes. */
static uint32_t stream_of(const struct sp_op_ctx *c, int block)
{
    const uint32_t key[] = {(uint32_t)c->g->cfg.seed, (uint32_t)c->g->data_step, (uint32_t)c->mb,
                            (uint32_t)(SP_LAYER_BLOCKS * c->first + block)};
    uint32_t stream = 0;

    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        stream = sp_random_bits(stream, key[i]);
    return stream;
}

/* Whether nothing is added to the gradient of a chunk after a round, of whose workers the last one is `*last`. */
static bool is_last_round(const struct sp_graph *g, int round, int chunk, int *last)
{
    const struct sp_ring *ring = sp_graph_ring(g);
    int i = ring->first[ring->turns] - 1;

    while (ring->ops[i].pass == SP_F || ring->ops[i].chunk != chunk)
        i--;
    *last = sp_line_workers(&g->cfg.plan->layout, round) - 1;
    return ring->ops[i].mb == round;
}

static void add_late(struct sp_graph *g, struct sp_stage *owner, int chunk, int journey);
static void close_chunk(struct sp_graph *g, struct sp_stage *owner, int chunk);

/* Whether the gradients of a chunk are whole with an op of its owner: all that comes down the line came before. */
static bool closes_with(const struct sp_op_ctx *c, const struct sp_op *op)
{
    int last;

    return c->g->ahead && is_line(c->g) &&
           is_last_round(c->g, op->mb / workers(c->g), op->chunk, &last) && last == c->st->index;
}

void sp_ring_gradients_end(struct sp_op_ctx *c, const struct sp_op *op, struct sp_tensor **own)
{
    bool returns = is_owner(c, op->chunk);
    const struct sp_stored *t;

    if (returns && is_line(c->g))
        add_late(c->g, c->st, op->chunk, 0);
    if (returns && closes_with(c, op))
        close_chunk(c->g, c->st, op->chunk);
    if (!keeps_apart(c->g) || (returns && is_line(c->g)))
        return;
    t = travelling(c, op);
    for (int i = 0; i < t->n; i++) {
        c->ctx.layer = c->first + i / SP_LAYER_BLOCKS;
        if (returns) {
            sp_travel_end_insert(&c->ctx, c->g->shape.dtype, t->piece[i], own[i]);
            sp_clear_insert(&c->ctx, t->piece[i]);
            continue;
        }
        sp_travel_add_insert(&c->ctx, c->g->shape.dtype, stream_of(c, i), own[i], t->piece[i]);
        sp_pool_drop(&own[i]);
    }
}

/* Whether no gradient of a chunk comes down the line after this one, nor is added by the owner: then his is whole, long
 * before the step ends. */
static bool is_last(const struct sp_graph *g, const struct sp_tensor_id *gradient)
{
    const struct sp_ring *ring = sp_graph_ring(g);
    int last;

    return is_last_round(g, gradient->mb, gradient->at, &last) &&
           last != sp_ring_owner(ring, gradient->at) &&
           sp_line_journey(ring, last, gradient->at) == gradient->slice;
}

/* ---- home -------------------------------------------------------------------------------------- */

/* Adds a gradient to those of its owner's blocks; around the ring in f32 it is that. */
static void add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id, int n,
                struct sp_tensor *const *piece)
{
    struct sp_task_context ctx = sp_stage_context(g, owner, 'D');

    for (int i = 0; i < n; i++) {
        struct sp_tensor_block at = sp_tensor_block(g->cfg.plan, &g->shape, id, i);
        struct sp_block *b = sp_stage_block(owner, at.kind, at.layer);

        ctx.layer = at.layer;
        if (rounds(g))
            sp_travel_end_insert(&ctx, g->shape.dtype, piece[i], b->g);
        else if (is_line(g))
            sp_sum_insert(&ctx, SP_F32, b->g, piece[i], false);
        else if (piece[i] != b->g)
            sp_copy_insert(&ctx, piece[i], b->g);
    }
}

/* What came home from a journey for a chunk and was left for later. */
static struct sp_ring_returned *late(struct sp_stage *owner, int chunk, int journey)
{
    return &owner->returned[2 * chunk + journey];
}

static void add_late(struct sp_graph *g, struct sp_stage *owner, int chunk, int journey)
{
    struct sp_ring_returned *h = late(owner, chunk, journey);
    struct sp_tensor_id id = {.kind = SP_TENSOR_D, .mb = -1, .at = chunk};

    add(g, owner, &id, h->n, h->piece);
    for (int i = 0; i < h->n; i++)
        sp_pool_drop(&h->piece[i]);
    free(h->piece);
    *h = (struct sp_ring_returned){0};
}

static void leave_for_later(struct sp_ring_returned *h, const struct sp_stored *t)
{
    h->piece = calloc((size_t)t->n, sizeof *h->piece);
    SP_NEED(h->piece, "no memory for a gradient of %d parts", t->n);
    h->n = t->n;
    for (int i = 0; i < t->n; i++) {
        sp_pool_hold(t->piece[i]);
        h->piece[i] = t->piece[i];
    }
}

/* The gradients of a chunk are whole. */
static void close_chunk(struct sp_graph *g, struct sp_stage *owner, int chunk)
{
    int chunks = sp_graph_ring(g)->chunks, first, count;

    for (int journey = 0; journey < 2; journey++)
        add_late(g, owner, chunk, journey);
    sp_part_layers(g->cfg.plan, g->shape.model.layers, chunks, chunk, &first, &count);
    for (int i = 0; i < SP_LAYER_BLOCKS * count; i++)
        sp_step_close(g, owner,
                      sp_stage_block(owner, sp_layer_block(i), first + i / SP_LAYER_BLOCKS));
}

/* What was left of a journey, of whatever chunk. */
static void add_all_late(struct sp_graph *g, struct sp_stage *owner, int journey)
{
    for (int c = 0; c < sp_graph_ring(g)->chunks; c++)
        add_late(g, owner, c, journey);
}

void sp_ring_gradients_return(struct sp_graph *g, struct sp_stage *owner,
                              const struct sp_tensor_id *id)
{
    const struct sp_stored *t = sp_store_find(&owner->store, id);
    bool line = is_line(g), closes = line && g->ahead && is_last(g, id);
    bool computes = line && owner->index < sp_line_workers(&g->cfg.plan->layout, id->mb);

    if (line)
        add_late(g, owner, id->at, 0);
    /* so that no more than one is left, however many chunks the owner has */
    if (line && id->slice > 0)
        add_all_late(g, owner, 1);
    if (t && line && !closes && (id->slice > 0 || computes))
        leave_for_later(late(owner, id->at, id->slice), t);
    else if (t)
        add(g, owner, id, t->n, t->piece);
    if (closes)
        close_chunk(g, owner, id->at);
}

void sp_ring_gradients_flush(struct sp_graph *g, struct sp_stage *owner)
{
    add_all_late(g, owner, 0);
    add_all_late(g, owner, 1);
}
