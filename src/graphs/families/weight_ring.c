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
 * Embedding and head are in parts on all workers, and whole while a step runs (graphs/families/shards.h).
 */
#include "graphs/families/chunk.h"
#include "graphs/families/family.h"
#include "graphs/families/ring_gradients.h"
#include "graphs/families/shards.h"
#include "graphs/step.h"
#include "policies/families/weight_ring/actions.h"
#include "policies/families/weight_ring/line.h"
#include "sp_error.h"
#include <limits.h>
#include <stdlib.h>

static int workers(const struct sp_graph *g)
{
    return g->place.stages;
}

/* Of the whole model: a micro-batch's. */
static int chunks(const struct sp_graph *g)
{
    return sp_graph_ring(g)->chunks;
}

static struct sp_chunk_activations *activations(const struct sp_op_ctx *c, int chunk)
{
    return &c->st->activations[chunk * sp_graph_ring(c->g)->rounds + c->mb / workers(c->g)];
}

/* ---- what comes by ---------------------------------------------------------------------------- */

/* The blocks that an op computes with: what came by, or the worker's own, listed in `own`. */
static struct sp_tensor *const *weights_of(struct sp_op_ctx *c, const struct sp_op *op,
                                           struct sp_tensor **own)
{
    struct sp_tensor_id id =
        sp_ring_passing(c->g, op->pass == SP_F ? SP_TENSOR_W : SP_TENSOR_WB, op->mb, op->chunk);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    for (int i = 0; !t && i < SP_LAYER_BLOCKS * c->count; i++)
        own[i] = sp_stage_piece(c->g, c->st, &id, i);
    return t ? t->piece : own;
}

/* ---- ops ---------------------------------------------------------------------------------------- */

/* Where the gradients of the norms of a chunk wait from B to W of a micro-batch. */
static struct sp_tensor **norms_of(const struct sp_op_ctx *c)
{
    size_t round = (size_t)(c->mb / workers(c->g));

    return &c->st->norms[SP_NORMS * (round * (size_t)c->sh->model.layers + (size_t)c->first)];
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
        sp_chunk_head(c, c->mb, c->fl->grad);
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

/* Embedding and head, and their gradients, zero at first. */
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
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W'};
    const struct sp_op *op = &a->op;
    struct sp_tensor *own[SP_LAYER_BLOCKS * g->shape.model.layers];
    struct sp_tensor *added[SP_LAYER_BLOCKS * g->shape.model.layers];
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->cuts[0].shapes[0],
        .ctx = sp_stage_context(g, st, passes[op->pass]),
        .mb = op->mb,
        .split = op->pass == SP_B && !sp_op_releases(g->cfg.plan, st->index, op),
    };

    sp_part_layers(g->cfg.plan, g->shape.model.layers, chunks(g), op->chunk, &c.first, &c.count);
    if (sp_ring_wants_weights(op))
        c.w = weights_of(&c, op, own);
    c.ctx.op_index = a->index;
    c.ctx.mb = op->mb;
    c.ctx.documents = sp_graph_documents(g, op->mb);
    c.ctx.op = sp_window_open(g->window, g->turn);
    c.fl = activations(&c, op->chunk);
    if (st->shards)
        take_ends(&c, a->index);
    if (sp_ring_adds(g->cfg.plan, st->index, op))
        c.gradient = sp_ring_gradients_begin(&c, op, added);
    expand(&c, op);
    if (c.gradient)
        sp_ring_gradients_end(&c, op, added);
    sp_op_close(&c.ctx);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    if (a->index >= 0)
        run_op(g, st, a);
    else
        sp_ring_gradients_return(g, st, &a->tensor);
}

/* ---- the family --------------------------------------------------------------------------------- */

static void discard(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_activations_drop(g, &g->stages[k], chunks(g), sp_graph_ring(g)->rounds);
}

static int create(struct sp_graph *g)
{
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        st->norms =
            calloc(SP_NORMS * (size_t)g->shape.model.layers * (size_t)sp_graph_ring(g)->rounds,
                   sizeof(struct sp_tensor *));
        st->returned = calloc(2 * (size_t)chunks(g), sizeof *st->returned);
        err = st->norms && st->returned
                  ? sp_activations_create(g, st, chunks(g), sp_graph_ring(g)->rounds)
                  : -ENOMEM;
        if (!err && workers(g) > 1)
            err = sp_shards_create(g, st);
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        sp_activations_destroy(&g->stages[k]);
        sp_shards_destroy(&g->stages[k]);
        free(g->stages[k].norms);
        free(g->stages[k].returned);
    }
}

/* The gradients of embedding and head are whole. */
static void end(struct sp_graph *g)
{
    for (int k = 0; workers(g) > 1 && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        sp_ring_gradients_flush(g, st);
        sp_shards_add(st, sp_stage_context(g, st, 'T'), INT_MAX);
    }
}

const struct sp_graph_family sp_graph_weight_ring = {
    .create = create,
    .destroy = destroy,
    .end = end,
    .collective = sp_shards_collective,
    .run = run,
    .make = sp_ring_make,
    .discard = discard,
};
