/*
 * The ops of the attention-parallel family with tensor parallelism of heads, MLP and vocabulary
 * (graphs/tensor/): the same as attention_parallel.c, product by product; attention is in
 * part_tensor_attention.c. Each member sends its own tensors between stages: of x, n1 and their
 * gradients the rows of its tokens; of q, kv, o and their gradients its heads of all tokens, one
 * piece per part of the tokens; and its part of the QKV weights.
 */
#include "graphs/families/part.h"
#include "graphs/tensor/attention.h"
#include "graphs/tensor/ends.h"
#include "graphs/tensor/halves.h"

/* The op's context for the tasks of a block. */
static struct sp_op_ctx op_of(const struct sp_part_op *c, struct sp_chunk_activations *one)
{
    return sp_part_op_of(c, &sp_part_activations_of(c, c->k)->block, one);
}

static struct sp_keep keep_of(const struct sp_part_op *c)
{
    return (struct sp_keep){.saved = c->keeps, .keep_outputs = c->keep_outputs};
}

/* ---- a block's forward ----------------------------------------------------------------------- */

static void embed(struct sp_part_op *c, struct sp_tensor *x)
{
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = op_of(c, &one);

    sp_tensor_embed(&op, sp_part_unit(c), x);
}

/* Runs post of layer k-1 into y. */
static void post_forward(struct sp_part_op *c, struct sp_tensor *residual, struct sp_tensor *y,
                         int64_t stash)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op;

    c->ctx.layer = c->k - 1;
    op = op_of(c, &one);
    sp_tensor_post_forward(&op, &t->block,
                           &(struct sp_tensor_post){.x = residual,
                                                    .w = sp_part_weight(c, SP_BLOCK_POST, c->k - 1),
                                                    .keep = keep_of(c),
                                                    .y = y,
                                                    .stashed = stash});
}

/* Computes the output of layer k-1, which is the input of layer k or of the head. */
static struct sp_tensor *finish_layer(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int layers = c->sh->model.layers;
    struct sp_tensor *x = sp_part_stored(c, SP_TENSOR_X, c->k - 1), *o[SP_MAX_SLICES];
    struct sp_tensor *y = sp_part_take_for(
        c, c->k < layers ? sp_part_attention_stage(c, c->k) : c->st->index, sp_part_hidden(c), "x");

    sp_part_hold_pieces(c, SP_TENSOR_O, c->k - 1, o);
    for (int j = 0; j < sp_part_shares(c); j++)
        t->block.shares[j].o = o[j];
    post_forward(c, x, y, c->stash);
    if (!c->keeps)
        t->block.x = sp_part_hold(x);
    return y;
}

/* Computes n1 = norm1(x) of layer k, taken from `pool`; keeps its statistics if anything is
 * kept. */
static struct sp_tensor *norm_forward(struct sp_part_op *c, struct sp_tensor *x,
                                      struct sp_pool *pool, int64_t stash)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *n1 = sp_pool_get(pool, sp_part_hidden(c), sp_shape_elem(c->sh), "n1");

    if (c->keeps)
        t->block.pre = sp_part_take(c, sp_shape_pre_saved(c->sh, false), "statistics");
    c->ctx.layer = c->k;
    sp_norm_fwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = x, .saved = t->block.pre}, n1,
                       sp_part_weight(c, SP_BLOCK_NORM1, c->k), stash);
    return n1;
}

/* Runs the QKV product at the block: q and kv go to attention; n1 is kept if outputs of norms
 * are. */
static void multiply(struct sp_part_op *c, struct sp_tensor *n1)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_pool *pool = sp_part_pool(c, sp_part_attention_stage(c, c->k));
    struct sp_tensor *q[SP_MAX_SLICES], *kv[SP_MAX_SLICES];
    struct sp_heads heads[SP_MAX_SLICES] = {0};
    struct sp_layer_activations here = {.shares = heads};
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = sp_part_op_of(c, &here, &one);

    sp_tensor_qkv_forward(&op, &here, n1, sp_part_weight(c, SP_BLOCK_QKV, c->k), true, pool);
    for (int j = 0; j < sp_part_shares(c); j++) {
        q[j] = heads[j].q;
        kv[j] = heads[j].kv;
    }
    sp_part_leave_pieces(c, SP_TENSOR_Q, c->k, sp_part_shares(c), q);
    sp_part_leave_pieces(c, SP_TENSOR_KV, c->k, sp_part_shares(c), kv);
    if (c->keep_outputs)
        t->block.n1 = n1;
    else
        sp_pool_drop(&n1);
}

static void pre_forward(struct sp_part_op *c, struct sp_tensor *x)
{
    struct sp_pool *pool =
        c->ships ? sp_part_pool(c, sp_part_attention_stage(c, c->k)) : c->st->local;
    struct sp_tensor *n1 = norm_forward(c, x, pool, c->k == 0 ? c->stash : 0);

    if (c->ships)
        sp_part_leave(c, SP_TENSOR_N1, c->k, n1);
    else
        multiply(c, n1);
    sp_part_leave_input(c, x);
}

static void block_forward(struct sp_part_op *c)
{
    struct sp_tensor *x;

    if (c->k == 0) {
        x = sp_part_take_for(c, sp_part_attention_stage(c, 0), sp_part_hidden(c), "x");
        embed(c, x);
    } else {
        x = finish_layer(c);
    }
    if (c->k == c->sh->model.layers && sp_part_shares_head(c))
        sp_part_head_input(c, x);
    if (c->k < c->sh->model.layers)
        pre_forward(c, x);
    else if (c->keeps)
        sp_part_activations_of(c, c->k)->block.x = x;
    else
        sp_pool_drop(&x);
}

/* ---- a block's backward ---------------------------------------------------------------------- */

/* Recomputes everything of a block except attention, from what the block received. */
static void recompute(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *residual = t->block.x, *n1;

    c->keeps = c->keep_outputs = true;
    t->block.x = sp_part_take(c, sp_part_hidden(c), "x");
    if (c->k == 0) {
        embed(c, t->block.x);
    } else {
        post_forward(c, residual, t->block.x, 0);
        sp_pool_drop(&residual);
    }
    if (c->k == c->sh->model.layers)
        return;
    n1 = norm_forward(c, t->block.x, c->st->local, 0);
    if (c->ships)
        sp_pool_drop(&n1);
    else
        t->block.n1 = n1;
}

/* Runs final norm, logits and loss; returns the gradient of the last layer's output. */
static struct sp_tensor *head(struct sp_part_op *c, bool kept)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int64_t released = kept ? sp_part_bytes(t->block.x) : 0;
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = op_of(c, &one);
    struct sp_tensor *dx;

    if (sp_part_shares_head(c))
        return sp_part_head_gradient(c, released);
    dx = sp_part_take(c, sp_part_hidden(c), "dx");
    sp_tensor_head(&op, sp_part_unit(c), t->block.x, dx, released);
    c->stash -= released;
    sp_pool_drop(&t->block.x);
    return dx;
}

/* Runs the QKV product's backward at the block, when q, k and v have travelled; dx includes the
 * norm's backward. */
static void product_backward(struct sp_part_op *c, struct sp_tensor *dr, struct sp_tensor *dx,
                             int64_t stash)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *dq[SP_MAX_SLICES], *dkv[SP_MAX_SLICES];
    struct sp_tensor *w_norm = sp_part_weight(c, SP_BLOCK_NORM1, c->k);
    struct sp_tensor *g = sp_part_gradient(c, SP_BLOCK_QKV, c->k);
    struct sp_heads heads[SP_MAX_SLICES] = {0};
    struct sp_layer_activations here = {.shares = heads};
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = sp_part_op_of(c, &here, &one);
    struct sp_shares dn1;

    sp_part_hold_pieces(c, SP_TENSOR_DQ, c->k, dq);
    sp_part_hold_pieces(c, SP_TENSOR_DKV, c->k, dkv);
    for (int j = 0; j < sp_part_shares(c); j++) {
        heads[j].dq = dq[j];
        heads[j].dkv = dkv[j];
    }
    if (!t->block.n1) {
        t->block.n1 = sp_part_take(c, sp_part_hidden(c), "n1");
        sp_norm_again_insert(&c->ctx, c->sh, false, w_norm, t->block.x, t->block.pre, t->block.n1);
    }
    sp_tensor_qkv_backward(
        &op, &here, t->block.n1,
        &(struct sp_tensor_weights){.w = sp_part_weight(c, SP_BLOCK_QKV, c->k), .g = g},
        c->st->local, &dn1);
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, false, false, w_norm,
                           sp_part_gradient(c, SP_BLOCK_NORM1, c->k), t->block.x, t->block.pre,
                           dn1.at[0], dn1.n - 1, dn1.at + 1, dr, dx, 0);
    sp_tensor_drop(&dn1);
    sp_tensor_qkv_wgrad(&op, &here, t->block.n1, g, false, stash);
    sp_pool_drop(&t->block.n1);
}

/* Computes the gradient of the input of layer k, and the weight gradients of pre. */
static struct sp_tensor *pre_backward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *dr = sp_part_stored(c, SP_TENSOR_DX, c->k);
    struct sp_tensor *dx = sp_part_take(c, sp_part_hidden(c), "dx");
    int64_t stash = c->k == 0 ? c->stash : 0;

    c->ctx.layer = c->k;
    if (c->ships) {
        sp_norm_bwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = t->block.x, .saved = t->block.pre},
                           sp_part_weight(c, SP_BLOCK_NORM1, c->k),
                           sp_part_gradient(c, SP_BLOCK_NORM1, c->k),
                           sp_part_stored(c, SP_TENSOR_DN1, c->k), dr, dx, stash);
    } else {
        product_backward(c, dr, dx, stash);
    }
    sp_pool_drop(&t->block.x);
    sp_pool_drop(&t->block.pre);
    return dx;
}

/* Computes the gradients of post of layer k-1 from that of its output; the one that attention waits
 * for comes first. */
static void post_backward(struct sp_part_op *c, struct sp_tensor *dy)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int stage = sp_part_attention_stage(c, c->k - 1);
    struct sp_tensor *w = sp_part_weight(c, SP_BLOCK_POST, c->k - 1);
    struct sp_tensor *g = sp_part_gradient(c, SP_BLOCK_POST, c->k - 1);
    struct sp_tensor *dr = sp_part_take_for(c, stage, sp_part_hidden(c), "dr");
    struct sp_tensor *d_o[SP_MAX_SLICES];
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op;

    c->ctx.layer = c->k - 1;
    op = op_of(c, &one);
    for (int j = 0; j < sp_part_shares(c); j++)
        d_o[j] = t->block.shares[j].d_o = sp_part_take_for(
            c, stage, (size_t)c->sh->rows * (size_t)sp_op_share(&op, j)->q_width, "do");
    sp_tensor_post_backward(&op, &t->block, dy, &(struct sp_tensor_weights){.w = w, .g = g}, dr);
    for (int j = 0; j < sp_part_shares(c); j++)
        t->block.shares[j].d_o = NULL;
    sp_part_leave_pieces(c, SP_TENSOR_DO, c->k - 1, sp_part_shares(c), d_o);
    sp_part_leave(c, SP_TENSOR_DX, c->k - 1, dr);
    sp_tensor_post_wgrad(&op, &t->block, w, g, c->stash);
}

static void block_backward(struct sp_part_op *c)
{
    bool kept = c->keeps;
    struct sp_chunk_activations one = {0};
    struct sp_tensor *dx;

    if (!kept)
        recompute(c);
    dx = c->k == c->sh->model.layers ? head(c, kept) : pre_backward(c);
    if (c->k == 0) {
        struct sp_op_ctx op = op_of(c, &one);

        sp_tensor_embed_gradient(&op, sp_part_unit(c), dx);
    } else {
        post_backward(c, dx);
    }
    sp_pool_drop(&dx);
}

void sp_part_tensor_run(struct sp_part_op *c, const struct sp_op *op)
{
    if (op->part == SP_ATTN)
        sp_part_tensor_attention(c, op->pass);
    else
        (op->pass == SP_F ? block_forward : block_backward)(c);
}
