/*
 * The weight-ring family (WeiPipe): a worker keeps its micro-batches, and the chunks of the model
 * travel past it with the gradients of their weights; src/policies/families/weight_ring/ring.h says
 * which chunk when, actions.c there says how.
 *
 *   F(mb, c):  [embed]  { pre  attn  post } for each layer of chunk c, with the passing weights
 *   L(mb):     final norm, logits, loss, and their gradients
 *   B(mb, c):  { (recompute)  post.B attn.B pre.B  weight gradients }, added to the passing
 *              gradients
 *   W(mb, c):  the weight gradients, and those of the norms, which B stored separately: if
 *              schedules separate them, weights pass for B and gradients for W
 *   U(c):      adds gradients that reached their owner to those of its blocks
 *
 * Embedding and head are in parts on all workers, and gathered while a step runs
 * (graphs/families/shards.h).
 */
#include "graphs/families/chunk.h"
#include "graphs/families/family.h"
#include "graphs/families/shards.h"
#include "graphs/step.h"
#include "policies/families/weight_ring/actions.h"
#include "policies/families/weight_ring/line.h"
#include "sp_error.h"
#include "policies/families/weight_ring/ring.h"
#include "graphs/layer/layer.h"
#include <limits.h>
#include <stdlib.h>

/*
 * Gradients that travel with the weights from worker to worker, in f32 or, rounded, in the type of
 * the run (codelets/travel.c): the buffers that a worker's op adds to, and their way to the chunk's
 * owner.
 */

static const struct sp_ring *ring_of(const struct sp_graph *g)
{
    return sp_ring_of(&g->cfg.plan->layout);
}

static int workers(const struct sp_graph *g)
{
    return g->place.stages;
}

static bool is_line(const struct sp_graph *g)
{
    return ring_of(g)->layout == SP_RING_LINE;
}

/* Names the travelling tensor for an op of micro-batch mb. Around the ring there is one of a kind
 * at a time; down the line one per round, and of gradients one per journey
 * (policies/families/weight_ring/line.h). */
static struct sp_tensor_id travelling_id(const struct sp_graph *g, enum sp_tensor_kind kind, int mb,
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

/* Makes a gradient that begins to travel, as zeros. Around the ring in f32, if its owner is in this
 * process, it is the gradient of the owner's blocks, which is zero then. */
static void make_zeros(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_stage *owner =
        is_line(g) || rounds(g) ? NULL : sp_graph_stage(g, sp_ring_owner(ring_of(g), id->at));
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

/* For struct sp_graph_family: makes a gradient that begins to travel from a stage. */
static void make_gradient(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    if (id->kind == SP_TENSOR_D && !sp_store_find(&st->store, id))
        make_zeros(g, st, id);
}

/* The travelling gradient that an op adds to, made if it does not exist. */
static const struct sp_stored *travelling(struct sp_op_ctx *c, const struct sp_op *op)
{
    struct sp_tensor_id id = travelling_id(c->g, SP_TENSOR_D, op->mb, op->chunk);

    make_gradient(c->g, c->st, &id);
    return sp_store_find(&c->st->store, &id);
}

/* True if the worker owns the blocks of an op's chunk. */
static bool is_owner(const struct sp_op_ctx *c, int chunk)
{
    return sp_ring_owner(ring_of(c->g), chunk) == c->st->index;
}

/* True if an op of the owner adds to the gradients of its own blocks and these do not travel.
 * Around the ring in f32 the owner's gradients are the travelling ones. */
static bool adds_at_owner(const struct sp_op_ctx *c, int chunk)
{
    return is_owner(c, chunk) && (is_line(c->g) || keeps_apart(c->g));
}

/* Returns the buffers that an op adds its gradients to: those of its own blocks, the travelling
 * ones, or, if an op sums by itself, f32 buffers of its own. `own`[blocks of the chunk] has room
 * for them, and is used unless they are the travelling ones. */
static struct sp_tensor *const *begin_gradients(struct sp_op_ctx *c, const struct sp_op *op,
                                                struct sp_tensor **own)
{
    struct sp_tensor_id id = travelling_id(c->g, SP_TENSOR_D, op->mb, op->chunk);
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

/* Random bits that differ for every block, worker, round and step, but not with the processes. */
static uint32_t stream_of(const struct sp_op_ctx *c, int block)
{
    const uint32_t key[] = {(uint32_t)c->g->cfg.seed, (uint32_t)c->g->data_step, (uint32_t)c->mb,
                            (uint32_t)(SP_LAYER_BLOCKS * c->first + block)};
    uint32_t stream = 0;

    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        stream = sp_random_bits(stream, key[i]);
    return stream;
}

/* True if no round after `round` adds to the gradient of a chunk; *last is the last worker that has
 * a micro-batch in `round`. */
static bool is_last_round(const struct sp_graph *g, int round, int chunk, int *last)
{
    const struct sp_ring *ring = ring_of(g);
    int i = ring->first[ring->turns] - 1;

    while (ring->ops[i].pass == SP_F || ring->ops[i].chunk != chunk)
        i--;
    *last = sp_line_workers(&g->cfg.plan->layout, round) - 1;
    return ring->ops[i].mb == round;
}

static void add_late(struct sp_graph *g, struct sp_stage *owner, int chunk, int journey);
static void close_chunk(struct sp_graph *g, struct sp_stage *owner, int chunk);

/* True if an op of the owner completes the gradients of its chunk, because everything that travels
 * down the line has arrived before. */
static bool closes_with(const struct sp_op_ctx *c, const struct sp_op *op)
{
    int last;

    return c->g->ahead && is_line(c->g) &&
           is_last_round(c->g, op->mb / workers(c->g), op->chunk, &last) && last == c->st->index;
}

/* Adds what the op summed to the travelling gradient, which must have arrived only now. Around the
 * ring the owner takes the travelling sum and sends it out again as zeros, so that no sum of more
 * than one round is rounded. */
static void end_gradients(struct sp_op_ctx *c, const struct sp_op *op, struct sp_tensor **own)
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

/* True if after this gradient of a chunk none comes down the line and the owner adds none. Then the
 * owner's gradient is complete, long before the step ends. */
static bool is_last(const struct sp_graph *g, const struct sp_tensor_id *gradient)
{
    const struct sp_ring *ring = ring_of(g);
    int last;

    return is_last_round(g, gradient->mb, gradient->at, &last) &&
           last != sp_ring_owner(ring, gradient->at) &&
           sp_line_journey(ring, last, gradient->at) == gradient->slice;
}

/* A gradient that has returned to its chunk's owner and is to be added; n is 0 if there is none. */
struct returned {
    int n;
    struct sp_tensor **piece; /* [n] */
};

/* A worker keeps these. */
struct worker {
    struct sp_tensor **norms;  /* [rounds][layers][SP_NORMS] */
    struct returned *returned; /* [chunks][journeys] */
};

/* ---- back at the owner
 * -------------------------------------------------------------------------- */

/* Adds a gradient to those of its owner's blocks. Around the ring in f32 it is that gradient, and
 * is copied if it is in another buffer. */
static void add_pieces(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id,
                       int n, struct sp_tensor *const *piece)
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

/* The gradient of a chunk that a journey brought back to its owner and that is added later. */
static struct returned *late(struct sp_stage *owner, int chunk, int journey)
{
    const struct worker *w = owner->own;

    return &w->returned[2 * chunk + journey];
}

static void add_late(struct sp_graph *g, struct sp_stage *owner, int chunk, int journey)
{
    struct returned *h = late(owner, chunk, journey);
    struct sp_tensor_id id = {.kind = SP_TENSOR_D, .mb = -1, .at = chunk};

    add_pieces(g, owner, &id, h->n, h->piece);
    for (int i = 0; i < h->n; i++)
        sp_pool_drop(&h->piece[i]);
    free(h->piece);
    *h = (struct returned){0};
}

static void leave_for_later(struct returned *h, const struct sp_stored *t)
{
    h->piece = calloc((size_t)t->n, sizeof *h->piece);
    SP_NEED(h->piece, "no memory for a gradient of %d parts", t->n);
    h->n = t->n;
    for (int i = 0; i < t->n; i++) {
        sp_pool_hold(t->piece[i]);
        h->piece[i] = t->piece[i];
    }
}

/* Closes the blocks of a chunk whose gradients are complete. */
static void close_chunk(struct sp_graph *g, struct sp_stage *owner, int chunk)
{
    int chunks = ring_of(g)->chunks, first, count;

    for (int journey = 0; journey < 2; journey++)
        add_late(g, owner, chunk, journey);
    sp_part_layers(g->cfg.plan, g->shape.model.layers, chunks, chunk, &first, &count);
    for (int i = 0; i < SP_LAYER_BLOCKS * count; i++)
        sp_step_close(g, owner,
                      sp_stage_block(owner, sp_layer_block(i), first + i / SP_LAYER_BLOCKS));
}

/* Adds the late gradients of a journey for all chunks. */
static void add_all_late(struct sp_graph *g, struct sp_stage *owner, int journey)
{
    for (int c = 0; c < ring_of(g)->chunks; c++)
        add_late(g, owner, c, journey);
}

/*
 * A gradient has reached its owner. Down the line, and if it was rounded, it is added to the
 * owner's; around the ring in f32 it is the owner's. Gradients from workers before the owner are
 * added with the owner's next op of that round. Gradients from workers that are turns behind it are
 * added when the next one comes, a round later, or by add_remaining_gradients at the end of the
 * step. So the owner's program does not wait.
 */
static void add_returned_gradient(struct sp_graph *g, struct sp_stage *owner,
                                  const struct sp_tensor_id *id)
{
    const struct sp_stored *t = sp_store_find(&owner->store, id);
    bool line = is_line(g), closes = line && g->ahead && is_last(g, id);
    bool computes = line && owner->index < sp_line_workers(&g->cfg.plan->layout, id->mb);

    if (line)
        add_late(g, owner, id->at, 0);
    /* so that at most one is late, however many chunks the owner has */
    if (line && id->slice > 0)
        add_all_late(g, owner, 1);
    if (t && line && !closes && (id->slice > 0 || computes))
        leave_for_later(late(owner, id->at, id->slice), t);
    else if (t)
        add_pieces(g, owner, id, t->n, t->piece);
    if (closes)
        close_chunk(g, owner, id->at);
}

static void add_remaining_gradients(struct sp_graph *g, struct sp_stage *owner)
{
    add_all_late(g, owner, 0);
    add_all_late(g, owner, 1);
}

/* The number of chunks of the model, which every micro-batch goes through. */
static int chunks(const struct sp_graph *g)
{
    return ring_of(g)->chunks;
}

static struct sp_chunk_activations *activations(const struct sp_op_ctx *c, int chunk)
{
    return &c->st->activations[chunk * ring_of(c->g)->rounds + c->mb / workers(c->g)];
}

/* ---- passing weights
 * ---------------------------------------------------------------------------- */

/* The blocks that an op computes with: the passing ones, or the worker's own, listed in `own`. */
static struct sp_tensor *const *weights_of(struct sp_op_ctx *c, const struct sp_op *op,
                                           struct sp_tensor **own)
{
    struct sp_tensor_id id =
        travelling_id(c->g, op->pass == SP_F ? SP_TENSOR_W : SP_TENSOR_WB, op->mb, op->chunk);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    for (int i = 0; !t && i < SP_LAYER_BLOCKS * c->count; i++)
        own[i] = sp_stage_piece(c->g, c->st, &id, i);
    return t ? t->piece : own;
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* The gradients of a chunk's norms, kept from B to W of a micro-batch. */
static struct sp_tensor **norms_of(const struct sp_op_ctx *c)
{
    size_t round = (size_t)(c->mb / workers(c->g));
    const struct worker *w = c->st->own;

    return &w->norms[SP_NORMS * (round * (size_t)c->sh->model.layers + (size_t)c->first)];
}

static void take_norms(struct sp_op_ctx *c)
{
    struct sp_tensor **norms = norms_of(c);
    size_t norm = sp_block_elements(&c->sh->held, SP_BLOCK_NORM1);
    const size_t sizes[SP_NORMS] = {norm, norm, sp_shape_gains(c->sh)};

    for (int i = 0; i < SP_NORMS * c->count; i++) {
        size_t n = sizes[i % SP_NORMS];

        c->ctx.layer = c->first + i / SP_NORMS;
        norms[i] = n ? sp_pool_get(c->st->local, n, sizeof(float), "norms") : NULL;
        if (n)
            sp_clear_insert(&c->ctx, norms[i]);
    }
    c->norms = norms;
}

static void add_norms(struct sp_op_ctx *c)
{
    const struct {
        enum sp_block_kind kind;
        size_t first;
    } to[SP_NORMS] = {
        {SP_BLOCK_NORM1, 0}, {SP_BLOCK_POST, c->sh->gain}, {SP_BLOCK_QKV, c->sh->q_gain}};
    struct sp_tensor **norms = norms_of(c);

    for (int i = 0; i < SP_NORMS * c->count; i++) {
        int k = i % SP_NORMS;

        c->ctx.layer = c->first + i / SP_NORMS;
        if (norms[i])
            sp_part_add_insert(&c->ctx, norms[i], sp_gradient(c, to[k].kind, c->ctx.layer),
                               to[k].first);
        sp_pool_drop(&norms[i]);
    }
}

static void expand(struct sp_op_ctx *c, const struct sp_op *op)
{
    int last = chunks(c->g) - 1;

    if (op->part == SP_HEAD) {
        c->fl = activations(c, last);
        c->fl->grad = sp_take_hidden(c, "dx");
        sp_chunk_head_of_output(c, c->mb, c->fl->grad);
        return;
    }
    switch (op->pass) {
    case SP_F:
        sp_chunk_forward(c, op->chunk < last ? activations(c, op->chunk + 1) : NULL);
        break;
    case SP_B:
        if (c->split)
            take_norms(c);
        sp_chunk_backward(c, op->chunk > 0 ? activations(c, op->chunk - 1) : NULL);
        break;
    case SP_W:
        sp_chunk_wgrad(c);
        add_norms(c);
        if (op->chunk == 0)
            sp_chunk_embed_gradient(c, c->mb, &c->fl->grad);
        break;
    }
}

/* Sets the gathered embedding and head and their gradients, which the first op clears. */
static void take_ends(struct sp_op_ctx *c, int index)
{
    struct sp_shards *s = c->st->shards;

    if (index == 0)
        sp_unit_clear(c->g, &c->ctx, &s->end_gradients, SP_SHARDS_ENDS);
    c->end_w = s->end_weights.handle;
    c->end_gradient = s->end_gradients.handle;
}

static void run_op(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_op *op = &a->op;
    struct sp_tensor *own[SP_LAYER_BLOCKS * g->shape.model.layers];
    struct sp_tensor *added[SP_LAYER_BLOCKS * g->shape.model.layers];
    struct sp_op_ctx c = sp_op_open(g, st, op, a->index);

    c.split = op->pass == SP_B && !sp_op_releases(g->cfg.plan, st->index, op);
    sp_part_layers(g->cfg.plan, g->shape.model.layers, chunks(g), op->chunk, &c.first, &c.count);
    if (sp_ring_wants_weights(op))
        c.w = weights_of(&c, op, own);
    c.fl = activations(&c, op->chunk);
    if (st->shards)
        take_ends(&c, a->index);
    if (sp_ring_adds(g->cfg.plan, st->index, op))
        c.gradient = begin_gradients(&c, op, added);
    expand(&c, op);
    if (c.gradient)
        end_gradients(&c, op, added);
    sp_op_close(&c.ctx);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    if (a->index >= 0)
        run_op(g, st, a);
    else
        add_returned_gradient(g, st, &a->tensor);
}

/* ---- the family ------------------------------------------------------------------------------ */

static void discard(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_activations_drop(g, &g->stages[k], chunks(g), ring_of(g)->rounds);
}

static int create(struct sp_graph *g)
{
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct worker *w = st->own = calloc(1, sizeof *w);

        if (!w)
            return -ENOMEM;
        w->norms = calloc(SP_NORMS * (size_t)g->shape.model.layers * (size_t)ring_of(g)->rounds,
                          sizeof(struct sp_tensor *));
        w->returned = calloc(2 * (size_t)chunks(g), sizeof *w->returned);
        err = w->norms && w->returned ? sp_activations_create(g, st, chunks(g), ring_of(g)->rounds)
                                      : -ENOMEM;
        if (!err && workers(g) > 1)
            err = sp_shards_create(g, st);
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct worker *w = g->stages[k].own;

        sp_activations_destroy(&g->stages[k]);
        sp_shards_destroy(&g->stages[k]);
        if (w) {
            free(w->norms);
            free(w->returned);
        }
        free(w);
    }
}

/* Completes the gradients at the end of a step. */
static void end(struct sp_graph *g)
{
    for (int k = 0; workers(g) > 1 && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        add_remaining_gradients(g, st);
        sp_shards_add(st, sp_stage_context(g, st, 'T'), INT_MAX);
    }
}

const struct sp_graph_family sp_graph_weight_ring = {
    .create = create,
    .destroy = destroy,
    .end = end,
    .collective = sp_shards_collective,
    .run = run,
    .make = make_gradient,
    .discard = discard,
};
