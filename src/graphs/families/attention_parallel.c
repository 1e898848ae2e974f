/*
 * The attention-parallel family (HelixPipe, sections 4.2 and 4.4): parameter blocks stay where they
 * are, attention of a layer runs on a stage of its own for every micro-batch.
 *
 *   P(mb, j):  [embed] | post of layer j-1, norm of layer j [, QKV]   -- x, n1 [W] | q kv  --> A(mb, j)
 *   A(mb, l):  [QKV] attention                                         -- x, o              --> P(mb, l+1)
 *
 * and back: dr, do to attention; dr, dn1 [dW] | dq dkv to the block. The residual x goes by way of
 * attention, as published. Where the QKV weights are shipped, neither q, k, v nor their gradients cross.
 * policies/families/attention_parallel/attention_parallel.h has what is kept between forward and backward.
 */
#include "graphs/families/family.h"
#include "graphs/families/part.h"
#include "graphs/offload/offload.h"
#include "sp_error.h"
#include <stdlib.h>

/* ---- forward ---------------------------------------------------------------------------- */

/* Post of layer k-1: the input of layer k, or of the head. */
static struct sp_tensor *post_forward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int layers = c->sh->model.layers;
    struct sp_tensor *x = sp_part_stored(c, SP_TENSOR_X, c->k - 1), *y;
    struct sp_tensor *o = sp_part_hold(sp_part_stored(c, SP_TENSOR_O, c->k - 1));

    y = sp_part_take_for(c, c->k < layers ? sp_part_attention_stage(c, c->k) : c->st->index,
                         sp_part_hidden(c), "x");
    if (c->keeps)
        t->block.post = sp_part_take(c, sp_shape_post_saved(c->sh, c->keep_outputs), "post saved");
    c->ctx.layer = c->k - 1;
    sp_post_fwd_insert(
        &c->ctx, c->sh,
        &(struct sp_post){.x = x, .o = o, .saved = t->block.post, .keep_outputs = c->keep_outputs},
        sp_part_weight(c, SP_BLOCK_POST, c->k - 1), y, c->stash);
    t->block.o = o;
    if (!c->keeps)
        t->block.x = sp_part_hold(x);
    return y;
}

/* Pre of layer k, or only its norm where the product runs beside attention. */
static void pre_forward(struct sp_part_op *c, struct sp_tensor *x)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int stage = sp_part_attention_stage(c, c->k);
    struct sp_pre pre = {.x = x, .keep_outputs = c->keep_outputs && !c->ships};
    int64_t stash = c->k == 0 ? c->stash : 0;

    if (c->keeps)
        pre.saved = t->block.pre =
            sp_part_take(c, sp_shape_pre_saved(c->sh, pre.keep_outputs), "pre saved");
    c->ctx.layer = c->k;
    if (c->ships) {
        struct sp_tensor *n1 = sp_part_take_for(c, stage, sp_part_hidden(c), "n1");

        sp_norm_fwd_insert(&c->ctx, c->sh, &pre, n1, sp_part_weight(c, SP_BLOCK_NORM1, c->k),
                           stash);
        sp_part_leave(c, SP_TENSOR_N1, c->k, n1);
    } else {
        pre.q = sp_part_take_for(c, stage, sp_part_q(c), "q");
        pre.kv = sp_part_take_for(c, stage, sp_part_kv(c), "kv");
        sp_pre_fwd_insert(&c->ctx, c->sh, &pre, sp_part_weight(c, SP_BLOCK_NORM1, c->k),
                          sp_part_weight(c, SP_BLOCK_QKV, c->k), stash);
        sp_part_leave(c, SP_TENSOR_Q, c->k, pre.q);
        sp_part_leave(c, SP_TENSOR_KV, c->k, pre.kv);
    }
    sp_part_leave_input(c, x);
}

static void block_forward(struct sp_part_op *c)
{
    struct sp_tensor *x;

    if (c->k == 0)
        sp_part_embed(
            c, x = sp_part_take_for(c, sp_part_attention_stage(c, 0), sp_part_hidden(c), "x"));
    else
        x = post_forward(c);
    if (c->k == c->sh->model.layers && sp_part_shares_head(c))
        sp_part_head_input(c, x);
    if (c->k < c->sh->model.layers)
        pre_forward(c, x);
    else if (c->keeps)
        sp_part_activations_of(c, c->k)->block.x = x;
    else
        sp_pool_drop(&x);
}

/* q, k and v of what was shipped, as attention reads them. */
static void multiply(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a = sp_part_attention_of(c, activations);

    t->attn.q = sp_part_take(c, sp_part_q(c), "q");
    t->attn.kv = sp_part_take(c, sp_part_kv(c), "kv");
    sp_qkv_fwd_insert(&c->ctx, c->sh, t->attn.n1, sp_part_weights_here(c, SP_BLOCK_QKV), t->attn.q,
                      t->attn.kv, 0);
    sp_attention_share_out(&a, &t->attn, true);
}

static void attention_forward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a;

    c->ctx.layer = c->k;
    a = sp_part_attention_of(c, activations);
    if (c->ships) {
        t->attn.n1 = sp_part_hold(sp_part_stored(c, SP_TENSOR_N1, c->k));
        multiply(c);
    } else {
        t->attn.q = sp_part_hold(sp_part_stored(c, SP_TENSOR_Q, c->k));
        t->attn.kv = sp_part_hold(sp_part_stored(c, SP_TENSOR_KV, c->k));
        sp_attention_share_out(&a, &t->attn, true);
    }
    sp_attention_forward(&a, 0, c->stash, c->st->boundary);
    sp_part_leave_output(c, 1, &t->attn.o);
    sp_part_forget(c);
}

/* ---- backward --------------------------------------------------------------------------- */

/* The input's gradient of the product, and that of its weights. */
static void qkv_backward(struct sp_part_op *c, struct sp_tensor *w, struct sp_tensor *dq,
                         struct sp_tensor *dkv)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *dn1 =
        sp_part_take_for(c, sp_part_block_stage(c, c->k), sp_part_hidden(c), "dn1");
    bool fresh;
    struct sp_tensor *dw = sp_part_gradient_here(c, SP_BLOCK_QKV, &fresh);

    sp_qkv_bwd_insert(&c->ctx, c->sh, t->attn.n1, w, dq, dkv, dn1, dw, false, fresh);
    sp_part_leave(c, SP_TENSOR_DN1, c->k, dn1);
    sp_qkv_wgrad_insert(&c->ctx, c->sh, t->attn.n1, dq, dkv, dw, fresh, c->stash);
    sp_pool_drop(&t->attn.n1);
    sp_pool_drop(&dq);
    sp_pool_drop(&dkv);
}

static void attention_backward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_pool *pool = c->ships ? c->st->local : sp_part_pool(c, sp_part_block_stage(c, c->k));
    struct sp_tensor *d_o = sp_part_stored(c, SP_TENSOR_DO, c->k);
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a;

    c->ctx.layer = c->k;
    a = sp_part_attention_of(c, activations);
    if (!sp_attention_has_keys(&t->attn))
        sp_part_each_slice(c, multiply);
    if (sp_part_runs_again(c))
        sp_attention_forward(&a, 0, 0, c->st->local);
    sp_attention_backward(&a, 0, d_o, pool, c->ships ? 0 : c->stash);
    sp_attention_drop(&a, &t->attn, true, true, true);
    if (c->ships) {
        qkv_backward(c, sp_part_weights_here(c, SP_BLOCK_QKV), t->attn.dq, t->attn.dkv);
    } else {
        sp_part_leave(c, SP_TENSOR_DQ, c->k, t->attn.dq);
        sp_part_leave(c, SP_TENSOR_DKV, c->k, t->attn.dkv);
    }
    t->attn.dq = t->attn.dkv = NULL;
}

/* Everything of a block but attention once more, from what it received. */
static void recompute(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_pre pre = {.keep_outputs = !c->ships};
    struct sp_tensor *residual = t->block.x;
    bool chunks = sp_part_cuts_mlp(c);

    c->keep_outputs = true;
    t->block.x = sp_part_take(c, sp_part_hidden(c), "x");
    if (c->k == 0) {
        sp_part_embed(c, t->block.x);
    } else {
        t->block.post = sp_part_take(
            c, chunks ? sp_shape_residual_saved(c->sh) : sp_shape_post_saved(c->sh, true),
            chunks ? "residual" : "post saved");
        c->ctx.layer = c->k - 1;
        sp_post_fwd_insert(&c->ctx, c->sh,
                           &(struct sp_post){.x = residual,
                                             .o = t->block.o,
                                             .saved = t->block.post,
                                             .keep_outputs = true,
                                             .residual = chunks},
                           sp_part_weight(c, SP_BLOCK_POST, c->k - 1), t->block.x, 0);
        sp_pool_drop(&residual);
    }
    if (c->k == c->sh->model.layers)
        return;
    pre.x = t->block.x;
    pre.saved = t->block.pre =
        sp_part_take(c, sp_shape_pre_saved(c->sh, pre.keep_outputs), "pre saved");
    c->ctx.layer = c->k;
    sp_norm_fwd_insert(&c->ctx, c->sh, &pre, NULL, sp_part_weight(c, SP_BLOCK_NORM1, c->k), 0);
}

/* Gradient of the input of layer k, and the weight gradients of pre. */
static struct sp_tensor *pre_backward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *dr = sp_part_stored(c, SP_TENSOR_DX, c->k);
    struct sp_tensor *a = sp_part_stored(c, c->ships ? SP_TENSOR_DN1 : SP_TENSOR_DQ, c->k);
    struct sp_tensor *b = c->ships ? NULL : sp_part_stored(c, SP_TENSOR_DKV, c->k);
    struct sp_pre pre = {
        .x = t->block.x, .saved = t->block.pre, .keep_outputs = c->keep_outputs && !c->ships};
    struct sp_tensor *w_norm = sp_part_weight(c, SP_BLOCK_NORM1, c->k);
    struct sp_tensor *g_norm = sp_part_gradient(c, SP_BLOCK_NORM1, c->k);
    struct sp_tensor *g_qkv = sp_part_gradient(c, SP_BLOCK_QKV, c->k);
    struct sp_tensor *dx = sp_part_take(c, sp_part_hidden(c), "dx");
    int64_t stash = c->k == 0 ? c->stash : 0;

    c->ctx.layer = c->k;
    if (c->ships) {
        sp_norm_bwd_insert(&c->ctx, c->sh, &pre, w_norm, g_norm, a, dr, dx, stash);
    } else {
        sp_pre_bwd_insert(&c->ctx, c->sh, &pre, w_norm, sp_part_weight(c, SP_BLOCK_QKV, c->k),
                          g_norm, g_qkv, false, a, b, dr, dx);
        sp_pre_wgrad_insert(&c->ctx, c->sh, &pre, w_norm, a, b, g_qkv, stash);
    }
    sp_pool_drop(&t->block.x);
    sp_pool_drop(&t->block.pre);
    return dx;
}

/* Gradients of post of layer k-1, from that of its output: what attention waits for goes first. */
static void post_backward(struct sp_part_op *c, struct sp_tensor *dy)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int stage = sp_part_attention_stage(c, c->k - 1);
    struct sp_tensor *w = sp_part_weight(c, SP_BLOCK_POST, c->k - 1);
    struct sp_tensor *g = sp_part_gradient(c, SP_BLOCK_POST, c->k - 1);
    struct sp_tensor *du = NULL, *dr = sp_part_take_for(c, stage, sp_part_hidden(c), "dr");
    struct sp_tensor *d_o = sp_part_take_for(c, stage, sp_part_q(c), "do");
    struct sp_post post = {.o = t->block.o,
                           .saved = t->block.post,
                           .keep_outputs = c->keep_outputs,
                           .residual = sp_part_cuts_mlp(c)};

    c->ctx.layer = c->k - 1;
    if (post.residual) {
        sp_post_again_insert(&c->ctx, c->sh, &post, w, g, dy, dr, d_o, c->stash);
    } else {
        du = sp_part_take(c, (size_t)c->sh->rows * (size_t)c->sh->up_width, "du");
        sp_post_bwd_insert(&c->ctx, c->sh, &post, w, g, false, dy, du, dr, d_o);
    }
    sp_part_leave(c, SP_TENSOR_DO, c->k - 1, d_o);
    sp_part_leave(c, SP_TENSOR_DX, c->k - 1, sp_part_hold(dr));
    if (!post.residual)
        sp_post_wgrad_insert(&c->ctx, c->sh, &post, w, g, dy, du, dr, c->stash);
    sp_pool_drop(&dr);
    sp_pool_drop(&du);
    sp_pool_drop(&t->block.post);
    sp_pool_drop(&t->block.o);
}

static void block_backward(struct sp_part_op *c)
{
    struct sp_tensor *dx;

    if (!c->keeps)
        recompute(c);
    dx = c->k == c->sh->model.layers ? sp_part_head(c) : pre_backward(c);
    if (c->k == 0) {
        sp_part_embed_gradient(c, dx);
    } else {
        post_backward(c, dx);
    }
    sp_pool_drop(&dx);
}

/* ---- the family ------------------------------------------------------------------------- */

/* Whether a block's forward computes nothing, as its output is the head's input alone, which the backward makes. */
static bool waits_for_head(const struct sp_part_op *c)
{
    return !c->keeps && c->k == c->sh->model.layers && !sp_part_shares_head(c);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &a->op;
    struct sp_chunk_activations one = {0};
    struct sp_part_activations *t;
    struct sp_op_ctx unit;
    struct sp_part_op c;

    if (a->index < 0) {
        sp_part_add(g, st, &a->tensor);
        return;
    }
    c = (struct sp_part_op){
        .g = g,
        .st = st,
        .sh = &g->cuts[0].shapes[op->slice],
        .ctx = sp_stage_context(g, st, op->pass == SP_F ? 'F' : 'B'),
        .mb = op->mb,
        .slice = op->slice,
        .k = op->chunk,
        .ships = sp_shipment(plan, &g->shape),
        .each = sp_ships_each_time(plan),
        .keeps = sp_stash_keeps(g->cfg.recompute, SP_STASH_PRE),
        .keeps_output = sp_stash_keeps(g->cfg.recompute, SP_STASH_O),
        .keep_outputs = g->cfg.recompute == SP_RECOMPUTE_NONE,
        .stash = sp_stash_of_op(plan, &g->shape, g->cfg.recompute, g->cfg.every, st->index, op),
    };

    c.ctx.op_index = a->index;
    c.ctx.mb = op->mb;
    c.ctx.slice = plan->layout.slices > 1 ? op->slice : -1;
    c.ctx.documents = sp_graph_documents(g, op->mb);
    c.ctx.op = sp_window_open(g->window, g->turn);
    t = sp_part_activations_of(&c, c.k);
    unit = sp_part_op_of(&c, op->part == SP_ATTN ? &t->attn : &t->block, &one);
    sp_offload_slot(&unit, 0);
    sp_offload_gate(&unit, 0);
    if (op->part == SP_BLOCK && op->pass == SP_F && waits_for_head(&c))
        sp_part_hold_inputs(&c);
    else if (c.ships == SP_SHIP_ATTENTION)
        sp_part_module_run(&c, op);
    else if (c.sh->tensor > 1)
        sp_part_tensor_run(&c, op);
    else if (op->part == SP_ATTN && op->pass == SP_F)
        attention_forward(&c);
    else if (op->part == SP_ATTN)
        attention_backward(&c);
    else if (op->pass == SP_F)
        block_forward(&c);
    else
        block_backward(&c);
    if (op->pass == SP_F)
        sp_offload_keep(&unit, 0);
    sp_op_close(&c.ctx);
}

/* Flights: of every slice of every block. */
static size_t activations_count(const struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;

    return (size_t)lay->micro_batches * (size_t)(lay->layers + 1) * (size_t)lay->slices;
}

static int create(struct sp_graph *g)
{
    size_t n = activations_count(g);
    int parts = sp_activations_parts(&g->shape);

    g->parts = calloc(n, sizeof *g->parts);
    g->part_heads = parts ? calloc(2 * n * (size_t)parts, sizeof *g->part_heads) : NULL;
    if (!g->parts || (parts && !g->part_heads))
        return -ENOMEM;
    for (size_t i = 0; g->part_heads && i < n; i++) {
        struct sp_heads *heads = g->part_heads + 2 * i * (size_t)parts;

        sp_activations_give(&g->shape, &g->parts[i].attn, heads);
        sp_activations_give(&g->shape, &g->parts[i].block, heads + parts);
    }
    return 0;
}

/* What the forwards of a slice left of block k and of attention of layer k. */
static void drop_activations(struct sp_part_activations *t, int parts)
{
    sp_pool_drop(&t->norm);
    sp_layer_drop(&t->attn, parts);
    sp_layer_drop(&t->block, parts);
}

static void discard(struct sp_graph *g)
{
    for (size_t i = 0; i < activations_count(g); i++)
        drop_activations(&g->parts[i], sp_activations_parts(&g->shape));
    for (int k = 0; k < g->place.n_local; k++)
        sp_stage_forget(g, &g->stages[k]);
}

static void destroy(struct sp_graph *g)
{
    free(g->parts);
    free(g->part_heads);
}

const struct sp_graph_family sp_graph_attention_parallel = {
    .create = create,
    .destroy = destroy,
    .run = run,
    .make = sp_part_make,
    .discard = discard,
};
