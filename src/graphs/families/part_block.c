/*
 * Blocks of the attention-parallel family. With ship=attention a block is the MLP of a layer only:
 * the norm, the QKV product and the output product before and after attention are attention's
 * (part_attention.c), and what travels is x and r = x + o Wo^T.
 */
#include "graphs/families/part.h"
#include "graphs/families/vocabulary.h"

static bool has_mlp_only(const struct sp_part_op *c)
{
    return c->ships == SP_SHIP_ATTENTION;
}

static bool is_last(const struct sp_part_op *c)
{
    return c->k == c->op.sh->model.layers;
}

static struct sp_part_activations *activations_of(const struct sp_part_op *c)
{
    return sp_part_activations_of(&c->op, c->k);
}

/* True if a block's backward does the MLP in chunks of rows. */
static bool cuts_mlp(const struct sp_part_op *c)
{
    return !c->keeps && sp_mlp_comes_in_chunks(c->op.sh, SP_RECOMPUTE_NO_ATTENTION);
}

static struct sp_product_weights post_weights(struct sp_part_op *c)
{
    return (struct sp_product_weights){.w = sp_weight(&c->op, SP_BLOCK_POST, c->k - 1),
                                       .g = sp_gradient(&c->op, SP_BLOCK_POST, c->k - 1)};
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Runs post of layer k-1 into y from its residual; y NULL: only what its backward needs. */
static void post_forward(struct sp_part_op *c, struct sp_tensor *residual, struct sp_keep keep,
                         struct sp_tensor *y, int64_t stash)
{
    c->op.ctx.layer = c->k - 1;
    sp_half_post_forward(&c->op, sp_part_own(c),
                         &(struct sp_post_forward){.x = residual,
                                                   .w = sp_weight(&c->op, SP_BLOCK_POST, c->k - 1),
                                                   .keep = keep,
                                                   .y = y,
                                                   .stashed = stash});
}

static struct sp_keep keep_of(const struct sp_part_op *c)
{
    return (struct sp_keep){.saved = c->keeps, .keep_outputs = c->keep_outputs};
}

/* Computes the input of layer k, or of the head: the embedding, or the output of layer k-1. */
static struct sp_tensor *input_of_layer(struct sp_part_op *c)
{
    int stage = is_last(c) ? c->op.st->index : sp_part_attention_stage(c, c->k);
    struct sp_tensor *x = sp_part_take_for(c, stage, sp_part_hidden(c), "x"), *residual;

    if (c->k == 0) {
        sp_chunk_embed(&c->op, sp_op_unit(&c->op), x);
        return x;
    }
    residual = sp_part_stored(c, has_mlp_only(c) ? SP_TENSOR_R : SP_TENSOR_X, c->k - 1);
    if (!has_mlp_only(c))
        sp_part_hold_shares(c, SP_TENSOR_O, c->k - 1);
    post_forward(c, residual, keep_of(c), x, c->stash);
    if (!c->keeps) {
        sp_pool_hold(residual);
        sp_part_own(c)->x = residual;
    }
    return x;
}

/* The norm of layer k, for the QKV product on attention's stage. */
static void norm_forward(struct sp_part_op *c, struct sp_tensor *x, struct sp_tensor *n1,
                         int64_t stash)
{
    struct sp_layer_activations *t = sp_part_own(c);

    if (c->keeps || !n1)
        t->pre = sp_pool_get(c->op.st->local, sp_shape_pre_saved(c->op.sh, false),
                             sp_shape_elem(c->op.sh), "pre saved");
    sp_norm_fwd_insert(&c->op.ctx, c->op.sh, &(struct sp_pre){.x = x, .saved = t->pre}, n1,
                       sp_weight(&c->op, SP_BLOCK_NORM1, c->k), stash);
}

/* Runs pre of layer k, or only its norm, for attention; x, which travels too, stays with the
 * activations if anything is kept. */
static void pre_forward(struct sp_part_op *c, struct sp_tensor *x)
{
    int stage = sp_part_attention_stage(c, c->k);
    int64_t stash = c->k == 0 ? c->stash : 0;

    c->op.ctx.layer = c->k;
    if (c->ships) {
        struct sp_tensor *n1 = sp_part_take_for(c, stage, sp_part_hidden(c), "n1");

        norm_forward(c, x, n1, stash);
        sp_part_leave(c, SP_TENSOR_N1, c->k, n1);
    } else {
        sp_half_pre_forward(
            &c->op, sp_part_own(c),
            &(struct sp_pre_forward){.x = x,
                                     .norm = sp_weight(&c->op, SP_BLOCK_NORM1, c->k),
                                     .qkv = sp_weight(&c->op, SP_BLOCK_QKV, c->k),
                                     .keep = keep_of(c),
                                     .keys = true,
                                     .pool = sp_part_pool(c, stage),
                                     .stashed = stash});
        sp_part_leave_shares(c, SP_TENSOR_Q, c->k);
        sp_part_leave_shares(c, SP_TENSOR_KV, c->k);
    }
    if (!c->keeps) {
        sp_part_leave(c, SP_TENSOR_X, c->k, x);
        return;
    }
    sp_part_own(c)->x = x;
    sp_part_leave_kept(c, SP_TENSOR_X, 1, &x, stage, true);
}

static void forward(struct sp_part_op *c)
{
    struct sp_tensor *x = input_of_layer(c);

    if (is_last(c) && sp_graph_shares_vocabulary(c->op.g))
        sp_vocabulary_input(&c->op, x, &activations_of(c)->norm);
    if (!is_last(c) && has_mlp_only(c))
        sp_part_leave(c, SP_TENSOR_X, c->k, x);
    else if (!is_last(c))
        pre_forward(c, x);
    else if (c->keeps)
        sp_part_own(c)->x = x;
    else
        sp_pool_drop(&x);
}

/* True if a block's forward computes nothing, because its output is only the head's input, which
 * the backward recomputes. */
static bool waits_for_head(const struct sp_part_op *c)
{
    return !c->keeps && is_last(c) && !sp_graph_shares_vocabulary(c->op.g);
}

/* The forward of a block that computes nothing: keeps the received tensors for its backward. */
static void hold_inputs(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    struct sp_tensor *held[SP_MAX_SLICES + 1];
    int n = 0;

    c->op.ctx.layer = c->k - 1;
    if (!has_mlp_only(c)) {
        sp_part_hold_shares(c, SP_TENSOR_O, c->k - 1);
        while (n < sp_tensor_shares(&c->op)) {
            held[n] = t->shares[n].o;
            n++;
        }
    }
    t->x = sp_part_hold(c, has_mlp_only(c) ? SP_TENSOR_R : SP_TENSOR_X, c->k - 1);
    held[n++] = t->x;
    sp_hold_insert(&c->op.ctx, c->op.sh, n, held, c->stash);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Recomputes norm1 of layer k. */
static void pre_again(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);

    c->op.ctx.layer = c->k;
    if (c->ships)
        norm_forward(c, t->x, NULL, 0);
    else
        sp_half_norm_forward(&c->op, t, t->x, sp_weight(&c->op, SP_BLOCK_NORM1, c->k));
}

/* Recomputes everything of a block except attention, from what the block received. */
static void recompute(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    struct sp_tensor *residual = t->x;
    struct sp_keep keep = {.saved = true, .keep_outputs = true, .residual = cuts_mlp(c)};

    c->keep_outputs = true;
    /* the MLP's output is the input of layer k or of the head; with ship=attention another stage
     * has the former */
    t->x = !has_mlp_only(c) || is_last(c) ? sp_take_hidden(&c->op, "x") : NULL;
    if (c->k == 0)
        sp_chunk_embed(&c->op, sp_op_unit(&c->op), t->x);
    else
        post_forward(c, residual, keep, t->x, 0);
    sp_pool_drop(&residual);
    if (!is_last(c) && !has_mlp_only(c))
        pre_again(c);
}

/* Runs final norm, logits and loss on the input in the activations; returns the gradient of the
 * last layer's output. */
static struct sp_tensor *head(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    int64_t released = c->keeps ? (int64_t)sp_tensor_size(t->x) : 0;
    struct sp_tensor *dx = sp_take_hidden(&c->op, "dx");

    if (sp_graph_shares_vocabulary(c->op.g)) {
        sp_vocabulary_gradient(&c->op, t->x, &activations_of(c)->norm, dx, released);
        sp_pool_drop(&t->x);
    } else {
        sp_chunk_head(&c->op, sp_op_unit(&c->op), &t->x, released, dx);
    }
    c->stash -= released;
    return dx;
}

/* Computes the gradient of the input of layer k, and the weight gradients of pre. */
static struct sp_tensor *pre_backward(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    int64_t stash = c->k == 0 ? c->stash : 0;
    struct sp_pre_backward pre = {.x = t->x,
                                  .norm = sp_weight(&c->op, SP_BLOCK_NORM1, c->k),
                                  .g_norm = sp_gradient(&c->op, SP_BLOCK_NORM1, c->k),
                                  .qkv = {.w = sp_weight(&c->op, SP_BLOCK_QKV, c->k),
                                          .g = sp_gradient(&c->op, SP_BLOCK_QKV, c->k)},
                                  .keep_outputs = c->keep_outputs,
                                  .dr = sp_part_stored(c, SP_TENSOR_DX, c->k),
                                  .dx = sp_take_hidden(&c->op, "dx")};

    c->op.ctx.layer = c->k;
    if (c->ships) {
        sp_norm_bwd_insert(&c->op.ctx, c->op.sh, &(struct sp_pre){.x = t->x, .saved = t->pre},
                           pre.norm, pre.g_norm, sp_part_stored(c, SP_TENSOR_DN1, c->k), pre.dr,
                           pre.dx, stash);
        sp_pool_drop(&t->pre);
    } else {
        sp_part_hold_shares(c, SP_TENSOR_DQ, c->k);
        sp_part_hold_shares(c, SP_TENSOR_DKV, c->k);
        sp_half_pre_backward(&c->op, t, &pre);
        sp_half_pre_wgrad(&c->op, t, &pre, stash);
    }
    sp_pool_drop(&t->x);
    return pre.dx;
}

/* Computes the gradients of post of layer k-1 from that of its output; the one that attention waits
 * for comes first. */
static void post_backward(struct sp_part_op *c, struct sp_tensor *dy)
{
    struct sp_layer_activations *t = sp_part_own(c);
    int stage = sp_part_attention_stage(c, c->k - 1);
    struct sp_post_backward post = {
        .w = post_weights(c),
        .keep_outputs = c->keep_outputs,
        .residual = cuts_mlp(c),
        .dy = dy,
        .dr = sp_part_take_for(c, stage, sp_part_hidden(c), "dr"),
        .released = c->stash,
    };

    c->op.ctx.layer = c->k - 1;
    for (int j = 0; !has_mlp_only(c) && j < sp_tensor_shares(&c->op); j++)
        t->shares[j].d_o = sp_part_take_for(
            c, stage, (size_t)c->op.sh->rows * (size_t)sp_op_share(&c->op, j)->q_width, "do");
    sp_half_post_backward(&c->op, t, &post);
    if (!has_mlp_only(c))
        sp_part_leave_shares(c, SP_TENSOR_DO, c->k - 1);
    sp_part_leave(c, has_mlp_only(c) ? SP_TENSOR_DR : SP_TENSOR_DX, c->k - 1, post.dr);
    sp_half_post_wgrad(&c->op, t, &post.w, c->keep_outputs, c->stash);
}

static void backward(struct sp_part_op *c)
{
    bool embeds_only = c->k == 0 && has_mlp_only(c);
    struct sp_tensor *dx;

    if (!c->keeps && !embeds_only)
        recompute(c);
    dx = is_last(c)        ? head(c)
         : has_mlp_only(c) ? sp_part_hold(c, SP_TENSOR_DX, c->k)
                           : pre_backward(c);
    if (c->k == 0) {
        sp_chunk_embed_gradient(&c->op, sp_op_unit(&c->op), &dx);
        return;
    }
    post_backward(c, dx);
    sp_pool_drop(&dx);
}

void sp_part_block(struct sp_part_op *c, enum sp_pass pass)
{
    if (pass == SP_B)
        backward(c);
    else if (waits_for_head(c))
        hold_inputs(c);
    else
        forward(c);
}
