/*
 * The ops of the attention-parallel family with ship=attention: a layer's attention is one part with its norm and both
 * products, blocks are MLPs alone.
 *
 *   P(mb, j):  embed | y = r + MLP(norm2(r)) of layer j-1        -- x --> A(mb, j)
 *   A(mb, l):  r = x + attention(norm1(x) Wqkv^T) Wo^T           -- r --> P(mb, l+1)
 *
 * and back: dr to attention, dx to the block. The weights of attention are its own stage's, or were shipped once.
 */
#include "graphs/families/part.h"

/* ---- attention ------------------------------------------------------------------------------------- */

/* norm1(x) and q, k, v of it, in the forward or once more; keeps what the backward of both wants if `saved`. */
static void pre_forward(struct sp_part_op *c, bool saved)
{
    struct sp_layer_activations *t = &sp_part_activations_of(c, c->k)->attn;
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a = sp_part_attention_of(c, activations);

    t->q = sp_part_take(c, sp_part_q(c), "q");
    t->kv = sp_part_take(c, sp_part_kv(c), "kv");
    if (saved)
        t->pre = sp_part_take(c, sp_shape_pre_saved(c->sh, c->keep_outputs), "pre saved");
    sp_pre_fwd_insert(&c->ctx, c->sh,
                      &(struct sp_pre){.x = t->x,
                                       .saved = t->pre,
                                       .q = t->q,
                                       .kv = t->kv,
                                       .keep_outputs = saved && c->keep_outputs},
                      sp_part_weights_here(c, SP_BLOCK_NORM1),
                      sp_part_weights_here(c, SP_BLOCK_QKV), 0);
    sp_attention_share_out(&a, t, true);
}

static void pre_again(struct sp_part_op *c)
{
    pre_forward(c, true);
}

static void attention_forward(struct sp_part_op *c)
{
    struct sp_layer_activations *t = &sp_part_activations_of(c, c->k)->attn;
    int block = sp_part_block_stage(c, c->k + 1);
    struct sp_tensor *r = sp_part_take_for(c, block, sp_part_hidden(c), "r");
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a;

    c->ctx.layer = c->k;
    t->x = sp_part_hold(sp_part_stored(c, SP_TENSOR_X, c->k));
    pre_forward(c, c->keeps);
    a = sp_part_attention_of(c, activations);
    sp_attention_forward(&a, 0, c->stash, c->st->local);
    sp_out_fwd_insert(&c->ctx, c->sh, t->o, sp_part_weights_here(c, SP_BLOCK_POST), true, t->x, r);
    sp_part_forget(c);
    sp_part_leave(c, SP_TENSOR_R, c->k, r);
}

/* The gradient of a block of weights, which is 0 where nothing was added to it. */
static struct sp_tensor *gradient(struct sp_part_op *c, enum sp_block_kind kind)
{
    bool fresh;
    struct sp_tensor *g = sp_part_gradient_here(c, kind, &fresh);

    if (fresh)
        sp_clear_insert(&c->ctx, g);
    return g;
}

static void attention_backward(struct sp_part_op *c)
{
    struct sp_layer_activations *t = &sp_part_activations_of(c, c->k)->attn;
    int block = sp_part_block_stage(c, c->k);
    struct sp_tensor *dr = sp_part_stored(c, SP_TENSOR_DR, c->k);
    struct sp_tensor *w_norm = sp_part_weights_here(c, SP_BLOCK_NORM1), *g_qkv, *g_out;
    struct sp_tensor *d_o = sp_part_take(c, sp_part_q(c), "do"), *dx;
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a;
    struct sp_pre pre;

    c->ctx.layer = c->k;
    if (!c->keeps)
        c->keep_outputs = true;
    if (!sp_attention_has_keys(t))
        sp_part_each_slice(c, pre_again);
    if (sp_part_runs_again(c)) {
        a = sp_part_attention_of(c, activations);
        sp_attention_forward(&a, 0, 0, c->st->local);
    }
    pre = (struct sp_pre){.x = t->x, .saved = t->pre, .keep_outputs = c->keep_outputs};
    a = sp_part_attention_of(c, activations);
    sp_out_bwd_insert(&c->ctx, c->sh, dr, sp_part_weights_here(c, SP_BLOCK_POST), d_o);
    sp_attention_backward(&a, 0, d_o, c->st->local, 0);
    sp_pool_drop(&d_o);
    sp_attention_drop(&a, t, true, true, false);
    dx = sp_part_take_for(c, block, sp_part_hidden(c), "dx");
    g_qkv = gradient(c, SP_BLOCK_QKV);
    sp_pre_bwd_insert(&c->ctx, c->sh, &pre, w_norm, sp_part_weights_here(c, SP_BLOCK_QKV),
                      gradient(c, SP_BLOCK_NORM1), g_qkv, false, t->dq, t->dkv, dr, dx);
    sp_part_leave(c, SP_TENSOR_DX, c->k, dx);
    g_out = gradient(c, SP_BLOCK_POST);
    sp_out_wgrad_insert(&c->ctx, c->sh, t->o, dr, g_out);
    sp_pre_wgrad_insert(&c->ctx, c->sh, &pre, w_norm, t->dq, t->dkv, g_qkv, c->stash);
    sp_attention_drop(&a, t, false, false, true);
    sp_pool_drop(&t->x);
    sp_pool_drop(&t->pre);
    sp_pool_drop(&t->dq);
    sp_pool_drop(&t->dkv);
}

/* ---- blocks ---------------------------------------------------------------------------------------- */

/* The MLP of layer k-1, from r; y NULL: only what its backward wants. */
static void mlp_forward(struct sp_part_op *c, struct sp_tensor *r, bool residual,
                        struct sp_tensor *y, int64_t stash)
{
    c->ctx.layer = c->k - 1;
    sp_post_fwd_insert(&c->ctx, c->sh,
                       &(struct sp_post){.x = r,
                                         .saved = sp_part_activations_of(c, c->k)->block.post,
                                         .keep_outputs = c->keep_outputs,
                                         .residual = residual},
                       sp_part_weight(c, SP_BLOCK_POST, c->k - 1), y, stash);
}

static void block_forward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    bool last = c->k == c->sh->model.layers;
    int next = last ? c->st->index : sp_part_attention_stage(c, c->k);
    struct sp_tensor *x = sp_part_take_for(c, next, sp_part_hidden(c), "x"), *r;

    if (c->k == 0) {
        sp_part_embed(c, x);
    } else {
        r = sp_part_stored(c, SP_TENSOR_R, c->k - 1);
        if (c->keeps)
            t->block.post =
                sp_part_take(c, sp_shape_post_saved(c->sh, c->keep_outputs), "post saved");
        else
            t->block.x = sp_part_hold(r);
        mlp_forward(c, r, false, x, c->stash);
    }
    if (last && sp_part_shares_head(c))
        sp_part_head_input(c, x);
    if (!last)
        sp_part_leave(c, SP_TENSOR_X, c->k, x);
    else if (c->keeps)
        t->block.x = x;
    else
        sp_pool_drop(&x);
}

/* What the backward wants of the MLP of layer k-1, and the head of its output. */
static void recompute(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *r = t->block.x;
    bool chunks = sp_part_cuts_mlp(c);

    c->keep_outputs = true;
    t->block.post =
        sp_part_take(c, chunks ? sp_shape_residual_saved(c->sh) : sp_shape_post_saved(c->sh, true),
                     chunks ? "residual" : "post saved");
    t->block.x = c->k == c->sh->model.layers ? sp_part_take(c, sp_part_hidden(c), "x") : NULL;
    mlp_forward(c, r, chunks, t->block.x, 0);
    sp_pool_drop(&r);
}

/* Gradients of the MLP of layer k-1, from that of its output: what attention waits for goes first. */
static void mlp_backward(struct sp_part_op *c, struct sp_tensor *dy)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int stage = sp_part_attention_stage(c, c->k - 1);
    struct sp_tensor *w = sp_part_weight(c, SP_BLOCK_POST, c->k - 1);
    struct sp_tensor *g = sp_part_gradient(c, SP_BLOCK_POST, c->k - 1);
    struct sp_tensor *dr = sp_part_take_for(c, stage, sp_part_hidden(c), "dr"), *du = NULL;
    struct sp_post post = {
        .saved = t->block.post, .keep_outputs = c->keep_outputs, .residual = sp_part_cuts_mlp(c)};

    c->ctx.layer = c->k - 1;
    if (post.residual) {
        sp_post_again_insert(&c->ctx, c->sh, &post, w, g, dy, dr, NULL, c->stash);
    } else {
        du = sp_part_take(c, (size_t)c->sh->rows * (size_t)c->sh->up_width, "du");
        sp_post_bwd_insert(&c->ctx, c->sh, &post, w, g, false, dy, du, dr, NULL);
    }
    sp_part_leave(c, SP_TENSOR_DR, c->k - 1, sp_part_hold(dr));
    if (!post.residual)
        sp_post_wgrad_insert(&c->ctx, c->sh, &post, w, g, dy, du, dr, c->stash);
    sp_pool_drop(&dr);
    sp_pool_drop(&du);
    sp_pool_drop(&t->block.post);
}

static void block_backward(struct sp_part_op *c)
{
    bool last = c->k == c->sh->model.layers;
    struct sp_tensor *dx;

    if (c->k == 0) {
        sp_part_embed_gradient(c, sp_part_stored(c, SP_TENSOR_DX, 0));
        return;
    }
    if (!c->keeps)
        recompute(c);
    dx = last ? sp_part_head(c) : sp_part_hold(sp_part_stored(c, SP_TENSOR_DX, c->k));
    mlp_backward(c, dx);
    sp_pool_drop(&dx);
}

void sp_part_module_run(struct sp_part_op *c, const struct sp_op *op)
{
    if (op->part == SP_ATTN)
        (op->pass == SP_F ? attention_forward : attention_backward)(c);
    else
        (op->pass == SP_F ? block_forward : block_backward)(c);
}
