#include "graphs/layer/layer.h"
#include "graphs/layer/halves.h"
#include "graphs/offload/offload.h"
#include "graphs/offload/streamed_keys.h"
#include "graphs/tensor/attention.h"

/* ---- forward -------------------------------------------------------------------------- */

/* Bytes of a tensor of attention if it is kept and counted as stashed, else 0. */
static int64_t counted(const struct sp_op_ctx *c, struct sp_keep keep, bool kept,
                       enum sp_recompute mode, enum sp_stash_tensor tensor)
{
    return keep.stash && kept
               ? (int64_t)(sp_shape_elem(c->sh) * sp_stash_elements(c->sh, mode, tensor))
               : 0;
}

void sp_layer_forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    enum sp_recompute outputs = keep.keep_outputs ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_SELECTIVE;
    bool keys = !sp_attention_has_keys(t); /* if they were kept for later slices, they exist */
    int layer = c->first + i;
    int64_t stashed = counted(c, keep, keep.qkv, SP_RECOMPUTE_NONE, SP_STASH_Q) +
                      counted(c, keep, sp_keeps_keys(c, keep), SP_RECOMPUTE_NONE, SP_STASH_KV) +
                      counted(c, keep, keep.saved, outputs, SP_STASH_PRE) +
                      (keep.stash && stash_x ? (int64_t)sp_tensor_size(t->x) : 0);

    c->ctx.layer = layer;
    sp_half_pre_forward(c, t,
                        &(struct sp_pre_forward){.x = t->x,
                                                 .norm = sp_weight(c, SP_BLOCK_NORM1, layer),
                                                 .qkv = sp_weight(c, SP_BLOCK_QKV, layer),
                                                 .keep = keep,
                                                 .keys = keys,
                                                 .pool = c->st->local,
                                                 .stashed = stashed});
    sp_tensor_attention_take(c, t, keys);
    t->stashed += stashed;
    if (c->share && c->ctx.pass == 'G')
        c->share(c, i);
}

void sp_layer_forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep)
{
    int64_t of_o = counted(c, keep, keep.attn, SP_RECOMPUTE_NONE, SP_STASH_O) +
                   counted(c, keep, keep.attn, SP_RECOMPUTE_NONE, SP_STASH_LSE);

    sp_tensor_attention_forward(c, i, of_o, c->st->local);
    c->fl->layers[i].stashed += of_o;
}

void sp_layer_forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y,
                          bool stash_y)
{
    struct sp_layer_activations *t = &c->fl->layers[i];

    c->ctx.layer = c->first + i;
    if (keep.has_attn)
        sp_tensor_attention_outputs(c, t, false);
    if (keep.stash)
        sp_offload_gate(c, 2 * i + 1);
    /* the head frees y and counts that */
    t->stashed += sp_half_post_forward(
        c, t,
        &(struct sp_post_forward){.x = t->x,
                                  .w = sp_weight(c, SP_BLOCK_POST, c->ctx.layer),
                                  .keep = keep,
                                  .y = y,
                                  .stashed = stash_y ? (int64_t)sp_tensor_size(y) : 0});
    sp_tensor_attention_drop(c, t, !keep.qkv, !sp_keeps_keys(c, keep), !keep.attn);
    sp_tensor_attention_drop_shares(c, t);
}

void sp_layer_forward(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y)
{
    sp_layer_forward_begin(c, i, keep, false);
    if (!keep.has_attn)
        sp_layer_forward_attention(c, i, keep);
    sp_layer_forward_end(c, i, keep, y, false);
}

void sp_layer_forward_again(struct sp_op_ctx *c, int i, bool output)
{
    bool whole = sp_chunk_recompute(c, i) == SP_RECOMPUTE_FULL;
    struct sp_keep keep = {.saved = true,
                           .keep_outputs = true,
                           .qkv = true,
                           .attn = true,
                           .has_attn = !whole,
                           .residual = sp_chunk_cuts_mlp(c, i)};
    struct sp_tensor *y = NULL;

    sp_streamed_keys_next_layer(c, i);
    if (whole && output)
        y = c->fl->layers[i + 1].x = sp_take_hidden_room(c, "x");
    sp_layer_forward(c, i, keep, y);
}

/* ---- backward ------------------------------------------------------------------------- */

/* True unless the forward dropped the outputs of norms and activations, and only these. */
static bool keeps_outputs(const struct sp_op_ctx *c, int i)
{
    return sp_chunk_recompute(c, i) != SP_RECOMPUTE_SELECTIVE;
}

/* The weights of post, and where the backward adds norm2's gradient. */
static struct sp_product_weights post_weights(struct sp_op_ctx *c, int i)
{
    int layer = c->first + i;

    return (struct sp_product_weights){.w = sp_weight(c, SP_BLOCK_POST, layer),
                                       .g = c->norms ? c->norms[SP_NORMS * i + 1]
                                                     : sp_gradient(c, SP_BLOCK_POST, layer),
                                       .apart = c->norms != NULL};
}

void sp_layer_backward_begin(struct sp_op_ctx *c, int i)
{
    const struct sp_shape *room = sp_op_room(c);
    struct sp_layer_activations *t = &c->fl->layers[i];
    bool cuts = sp_chunk_cuts_mlp(c, i);

    c->ctx.layer = c->first + i;
    for (int j = 0; j < sp_tensor_shares(c); j++)
        t->shares[j].d_o =
            sp_pool_get(c->st->local, (size_t)room->rows * (size_t)sp_op_share(c, j)->q_width,
                        sp_shape_elem(c->sh), "do");
    t->dr = sp_take_hidden_room(c, "dr");
    if (cuts)
        sp_tensor_attention_outputs(c, t, false);
    sp_half_post_backward(c, t,
                          &(struct sp_post_backward){.w = post_weights(c, i),
                                                     .keep_outputs = keeps_outputs(c, i),
                                                     .residual = cuts,
                                                     .dy = t->dy,
                                                     .dr = t->dr});
    if (cuts)
        sp_tensor_attention_drop_shares(c, t);
}

void sp_layer_backward_attention(struct sp_op_ctx *c, int i)
{
    c->ctx.layer = c->first + i;
    sp_tensor_attention_backward(c, i, c->st->local, 0);
}

/* The gradients of pre are computed from these tensors; those of the norm and of the gains of heads
 * come with dx. */
static struct sp_pre_backward pre_backward(struct sp_op_ctx *c, int i)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;

    return (struct sp_pre_backward){
        .x = t->x,
        .norm = sp_weight(c, SP_BLOCK_NORM1, layer),
        .g_norm = c->norms ? c->norms[SP_NORMS * i] : sp_gradient(c, SP_BLOCK_NORM1, layer),
        .qkv = {.w = sp_weight(c, SP_BLOCK_QKV, layer),
                .g = c->norms ? c->norms[SP_NORMS * i + 2] : sp_gradient(c, SP_BLOCK_QKV, layer),
                .apart = c->norms != NULL},
        .keep_outputs = keeps_outputs(c, i),
        .dr = t->dr,
    };
}

void sp_layer_backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_pre_backward pre = pre_backward(c, i);

    c->ctx.layer = c->first + i;
    if (c->share && !sp_shape_exchanges(c->sh)) /* else before the members exchanged them back */
        c->share(c, i);
    sp_tensor_attention_end(c, t);
    pre.dx = dx;
    pre.awaited = i == 0; /* no other stage waits for the weight gradients that follow */
    sp_half_pre_backward(c, t, &pre);
    sp_pool_drop(&t->dr);
    sp_pool_drop(&t->dy);
}

void sp_layer_wgrad(struct sp_op_ctx *c, int i)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;
    struct sp_product_weights post = {.w = sp_weight(c, SP_BLOCK_POST, layer),
                                      .g = sp_gradient(c, SP_BLOCK_POST, layer)};
    struct sp_pre_backward pre = pre_backward(c, i);

    c->ctx.layer = layer;
    if (t->post) /* else the backward has computed the gradients of post */
        sp_tensor_attention_outputs(c, t, true);
    sp_half_post_wgrad(c, t, &post, keeps_outputs(c, i), 0);
    pre.qkv.g = sp_gradient(c, SP_BLOCK_QKV, layer);
    sp_half_pre_wgrad(c, t, &pre, t->stashed);
    sp_pool_drop(&t->x);
    t->stashed = 0;
}

void sp_layer_drop(struct sp_layer_activations *t, int parts)
{
    struct sp_tensor **const left[] = {&t->x, &t->pre, &t->post, &t->n1, &t->r, &t->n2};

    for (size_t k = 0; k < sizeof left / sizeof *left; k++)
        sp_pool_drop(left[k]);
    sp_heads_drop(&t->own);
    for (int j = 0; j < parts; j++)
        sp_heads_drop(sp_activations_first(t) + j);
    *t = (struct sp_layer_activations){.heads = t->heads, .shares = t->shares};
}
