/*
 * The weight-ring family (WeiPipe): a worker keeps its micro-batches, and the chunks of the model
 * come by with the gradients of their weights; src/policies/families/weight_ring/ring.h says which when,
 * actions.c beside it how.
 *
 *   F(mb, c):  [embed]  { pre  attn  post } for each layer of chunk c, with weights that came by
 *   L(mb):     final norm, logits, loss, and their gradients
 *   B(mb, c):  { (recompute)  post.B attn.B pre.B  weight gradients } onto the gradients that came by
 *   W(mb, c):  the weight gradients, and those of the norms, which B left apart: where schedules
 *              separate them, weights come by for B and gradients for W
 *   U(c):      gradients that came home, to those of their owner's blocks
 *
 * Embedding and head are on every worker (policies/families/replicas.h).
 */
#include "graphs/families/chunk.h"
#include "graphs/families/family.h"
#include "graphs/step.h"
#include "policies/families/weight_ring/actions.h"
#include "starpipe/order.h"
#include <stdlib.h>

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

static struct sp_chunk_flight *flight(const struct sp_op_ctx *c, int chunk)
{
    return &c->st->flights[chunk * ring_of(c->g)->rounds + c->mb / workers(c->g)];
}

/* ---- what comes by ---------------------------------------------------------------------------- */

/* Around the ring there is one of a kind at a time, down the line one a round. */
static struct sp_tensor_id passing(const struct sp_graph *g, enum sp_tensor_kind kind, int mb,
                                   int chunk)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .mb = is_line(g) ? mb / workers(g) : -1, .at = chunk};
}

static bool rounds(const struct sp_graph *g)
{
    return sp_rounds_gradients(g->cfg.plan, &g->shape);
}

/* A gradient that sets out: as zeros; around the ring in f32 as that of its owner's blocks, which is zero, if these are
 * in this process. */
static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_stage *owner =
        is_line(g) || rounds(g) ? NULL : sp_graph_stage(g, sp_ring_owner(ring_of(g), id->at));
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    starpu_data_handle_t *piece = calloc((size_t)n, sizeof *piece);
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');

    STARPU_ASSERT_MSG(piece, "starpipe: no memory for a gradient of %d parts", n);
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

static void make_gradient(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    if (id->kind == SP_TENSOR_D && !sp_store_find(&st->store, id))
        make(g, st, id);
}

/* The blocks that an op computes with: what came by, or the worker's own, listed in `own`. */
static const starpu_data_handle_t *weights_of(struct sp_op_ctx *c, const struct sp_op *op,
                                              starpu_data_handle_t *own)
{
    struct sp_tensor_id id =
        passing(c->g, op->pass == SP_F ? SP_TENSOR_W : SP_TENSOR_WB, op->mb, op->chunk);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    for (int i = 0; !t && i < SP_LAYER_BLOCKS * c->count; i++)
        own[i] = sp_stage_piece(c->g, c->st, &id, i);
    return t ? t->piece : own;
}

/* What travels of the gradient that an op adds to. */
static const struct sp_stored *travelling(struct sp_op_ctx *c, const struct sp_op *op)
{
    struct sp_tensor_id id = passing(c->g, SP_TENSOR_D, op->mb, op->chunk);

    make_gradient(c->g, c->st, &id);
    return sp_store_find(&c->st->store, &id);
}

/* Around the ring a gradient comes by its owner in every round. */
static bool is_home(const struct sp_op_ctx *c, int chunk)
{
    return !is_line(c->g) && sp_ring_owner(ring_of(c->g), chunk) == c->st->index;
}

/* What an op adds its gradients to: what travels itself; where that is rounded, f32 of its own, or, of the owner, his
 * blocks'. */
static const starpu_data_handle_t *begin_gradients(struct sp_op_ctx *c, const struct sp_op *op,
                                                   starpu_data_handle_t *own)
{
    struct sp_tensor_id id = passing(c->g, SP_TENSOR_D, op->mb, op->chunk);
    size_t bytes;

    if (!rounds(c->g))
        return travelling(c, op)->piece;
    for (int i = 0; i < SP_LAYER_BLOCKS * c->count; i++) {
        if (is_home(c, op->chunk)) {
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

/* What an op added goes to what travels, which only now has to be here. The owner takes what that has gathered, so that
 * no sum of more than a round is rounded, and it sets out again as zeros. */
static void end_gradients(struct sp_op_ctx *c, const struct sp_op *op, starpu_data_handle_t *own)
{
    const struct sp_stored *t;

    if (!c->gradient || !rounds(c->g))
        return;
    t = travelling(c, op);
    for (int i = 0; i < t->n; i++) {
        c->ctx.layer = c->first + i / SP_LAYER_BLOCKS;
        if (is_home(c, op->chunk)) {
            sp_travel_end_insert(&c->ctx, c->g->shape.dtype, t->piece[i], own[i]);
            sp_clear_insert(&c->ctx, t->piece[i]);
            continue;
        }
        sp_travel_add_insert(&c->ctx, c->g->shape.dtype, stream_of(c, i), own[i], t->piece[i]);
        sp_drop(&own[i]);
    }
}

/* ---- ops ---------------------------------------------------------------------------------------- */

/* Where the gradients of the norms of a chunk wait from B to W of a micro-batch. */
static starpu_data_handle_t *norms_of(const struct sp_op_ctx *c)
{
    size_t round = (size_t)(c->mb / workers(c->g));

    return &c->st->norms[SP_NORMS * (round * (size_t)c->sh->model.layers + (size_t)c->first)];
}

static void take_norms(struct sp_op_ctx *c)
{
    starpu_data_handle_t *norms = norms_of(c);
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
    starpu_data_handle_t *norms = norms_of(c);

    for (int i = 0; i < SP_NORMS * c->count; i++) {
        int k = i % SP_NORMS;

        c->ctx.layer = c->first + i / SP_NORMS;
        if (norms[i])
            sp_part_add_insert(&c->ctx, norms[i], sp_gradient(c, to[k].kind, c->ctx.layer),
                               to[k].first);
        sp_drop(&norms[i]);
    }
}

static void expand(struct sp_op_ctx *c, const struct sp_op *op)
{
    int last = workers(c->g) - 1;

    if (op->part == SP_HEAD) {
        c->fl = flight(c, last);
        c->fl->grad = sp_take_hidden(c, "dx");
        sp_chunk_head(c, c->mb, c->fl->grad);
        return;
    }
    switch (op->pass) {
    case SP_F:
        sp_chunk_forward(c, op->chunk < last ? flight(c, op->chunk + 1) : NULL);
        break;
    case SP_B:
        if (c->split)
            take_norms(c);
        sp_chunk_backward(c, op->chunk > 0 ? flight(c, op->chunk - 1) : NULL);
        break;
    case SP_W:
        for (int i = c->count - 1; i >= 0; i--)
            sp_layer_wgrad(c, i);
        add_norms(c);
        if (op->chunk == 0)
            sp_chunk_embed_gradient(c, c->mb, &c->fl->grad);
        break;
    }
}

static void run_op(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W'};
    const struct sp_op *op = &a->op;
    starpu_data_handle_t own[SP_LAYER_BLOCKS * g->shape.model.layers];
    starpu_data_handle_t added[SP_LAYER_BLOCKS * g->shape.model.layers];
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->cuts[0].shapes[0],
        .ctx = sp_stage_context(g, st, passes[op->pass]),
        .mb = op->mb,
        .split = op->pass == SP_B && !sp_op_releases(g->cfg.plan, st->index, op),
    };

    sp_part_layers(g->cfg.plan, g->shape.model.layers, workers(g), op->chunk, &c.first, &c.count);
    if (sp_ring_wants_weights(op))
        c.w = weights_of(&c, op, own);
    c.ctx.op_index = a->index;
    c.ctx.mb = op->mb;
    c.ctx.documents = sp_graph_documents(g, op->mb);
    c.ctx.op = sp_window_open(g->window, g->turn);
    c.fl = flight(&c, op->chunk);
    if (sp_ring_adds(g->cfg.plan, st->index, op))
        c.gradient = begin_gradients(&c, op, added);
    expand(&c, op);
    end_gradients(&c, op, added);
    sp_op_close(&c.ctx);
}

/* ---- gradients that came home ------------------------------------------------------------------- */

/* What other workers summed up of embedding or head so far. */
static void add_end(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'T');

    ctx.layer = -1;
    sp_sum_insert(&ctx, SP_F32, sp_stage_gradient(st, (enum sp_block_kind)id->block, -1),
                  sp_store_find(&st->store, id)->piece[0], false);
}

/* Whether the last worker has no op after those of a round that has to do with a chunk: then its gradient is
 * whole, long before the step ends. */
static bool is_last_of_chunk(const struct sp_graph *g, int round, int chunk)
{
    const struct sp_program *prog = &g->cfg.plan->programs[workers(g) - 1];
    const struct sp_op *last = NULL;

    for (int k = 0; k < prog->n; k++)
        if (prog->ops[k].part == SP_CHUNK && prog->ops[k].chunk == chunk)
            last = &prog->ops[k];
    return last && last->mb / workers(g) == round;
}

/* Down the line a round's gradient is added to the owner's, as is what was rounded; around the ring it is the
 * owner's. */
static void come_home(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id)
{
    const struct sp_stored *t = sp_store_find(&owner->store, id);
    bool whole = is_line(g) && is_last_of_chunk(g, id->mb, id->at);
    struct sp_task_context ctx = sp_stage_context(g, owner, 'D');

    for (int i = 0; t && i < t->n; i++) {
        struct sp_tensor_block at = sp_tensor_block(g->cfg.plan, &g->shape, id, i);
        struct sp_block *b = sp_stage_block(owner, at.kind, at.layer);

        ctx.layer = at.layer;
        if (rounds(g))
            sp_travel_end_insert(&ctx, g->shape.dtype, t->piece[i], b->g);
        else if (is_line(g))
            sp_sum_insert(&ctx, SP_F32, b->g, t->piece[i], false);
        else if (t->piece[i] != b->g)
            sp_copy_insert(&ctx, t->piece[i], b->g);
        if (whole)
            sp_step_close(g, owner, b);
    }
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    if (a->index >= 0)
        run_op(g, st, a);
    else if (a->tensor.kind == SP_TENSOR_GRADIENT)
        add_end(g, st, &a->tensor);
    else
        come_home(g, st, &a->tensor);
}

/* ---- the family --------------------------------------------------------------------------------- */

static void discard(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_flights_drop(g, &g->stages[k], workers(g), ring_of(g)->rounds);
}

static int create(struct sp_graph *g)
{
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        st->norms = calloc(SP_NORMS * (size_t)g->shape.model.layers * (size_t)ring_of(g)->rounds,
                           sizeof(starpu_data_handle_t));
        err = st->norms ? sp_flights_create(g, st, workers(g), ring_of(g)->rounds) : -ENOMEM;
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        sp_flights_destroy(&g->stages[k]);
        free(g->stages[k].norms);
    }
}

const struct sp_graph_family sp_graph_weight_ring = {
    .create = create,
    .destroy = destroy,
    .run = run,
    .make = make_gradient,
    .discard = discard,
};
