#include "graphs/offload/offload.h"
#include "graphs/tensor/attention.h"
#include "graphs/tensor/halves.h"

static struct sp_tensor *statistics(struct sp_op_ctx *c)
{
    return sp_pool_get(c->st->local, sp_shape_pre_saved(c->sh, false), sp_shape_elem(c->sh),
                       "statistics");
}

/* Bytes of a stashed tensor in a recompute mode. */
static int64_t bytes_of(const struct sp_op_ctx *c, enum sp_recompute mode,
                        enum sp_stash_tensor tensor)
{
    return (int64_t)(sp_shape_elem(c->sh) * sp_stash_elements(c->sh, mode, tensor));
}

/* Runs the norm and the QKV product; returns the bytes stashed. */
static int64_t forward_pre(struct sp_op_ctx *c, int i, struct sp_keep keep, bool keep_kv,
                           bool stash_x)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    enum sp_recompute outputs = keep.keep_outputs ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_SELECTIVE;
    bool keys = !sp_attention_has_keys(t); /* if they were kept for later slices, they exist */
    int layer = c->first + i;
    int64_t stashed = 0;

    if (keep.stash)
        stashed = (keep.qkv ? bytes_of(c, SP_RECOMPUTE_NONE, SP_STASH_Q) : 0) +
                  (keep_kv ? bytes_of(c, SP_RECOMPUTE_NONE, SP_STASH_KV) : 0) +
                  (keep.saved ? bytes_of(c, outputs, SP_STASH_PRE) : 0) +
                  (stash_x ? (int64_t)sp_tensor_size(t->x) : 0);
    if (keep.saved)
        t->pre = statistics(c);
    t->n1 = sp_take_hidden(c, "n1");
    sp_norm_fwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = t->x, .saved = t->pre}, t->n1,
                       sp_weight(c, SP_BLOCK_NORM1, layer), stashed);
    sp_tensor_qkv_forward(c, t, t->n1, sp_weight(c, SP_BLOCK_QKV, layer), keys, c->st->local);
    sp_tensor_attention_take(c, t, keys);
    if (!keep.keep_outputs)
        sp_pool_drop(&t->n1);
    return stashed;
}

/* Drops the outputs of the shares if attention keeps them joined. */
static void drop_outputs(struct sp_op_ctx *c, struct sp_layer_activations *t)
{
    for (int j = 0; sp_op_cut(c)->joined && j < sp_tensor_shares(c); j++)
        sp_pool_drop(&t->shares[j].o);
}

void sp_tensor_layer_forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x)
{
    c->ctx.layer = c->first + i;
    c->fl->layers[i].stashed += forward_pre(c, i, keep, sp_keeps_keys(c, keep), stash_x);
}

void sp_tensor_layer_forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep)
{
    int64_t of_o = !keep.stash || !keep.attn ? 0
                                             : bytes_of(c, SP_RECOMPUTE_NONE, SP_STASH_O) +
                                                   bytes_of(c, SP_RECOMPUTE_NONE, SP_STASH_LSE);

    sp_tensor_attention_forward(c, i, of_o, c->st->local);
    c->fl->layers[i].stashed += of_o;
}

void sp_tensor_layer_forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep,
                                 struct sp_tensor *y, bool stash_y)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    enum sp_recompute outputs = keep.keep_outputs ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_SELECTIVE;

    c->ctx.layer = c->first + i;
    if (keep.has_attn)
        sp_tensor_attention_outputs(c, t);
    if (keep.stash)
        sp_offload_gate(c, 2 * i + 1);
    sp_tensor_post_forward(
        c, t,
        &(struct sp_tensor_post){.x = t->x,
                                 .w = sp_weight(c, SP_BLOCK_POST, c->ctx.layer),
                                 .keep = keep,
                                 .y = y,
                                 .stashed = stash_y ? (int64_t)sp_tensor_size(y) : 0});
    if (keep.stash && keep.saved)
        t->stashed += bytes_of(c, outputs, SP_STASH_POST);
    sp_tensor_attention_drop(c, t, !keep.qkv, !sp_keeps_keys(c, keep), !keep.attn);
    drop_outputs(c, t);
}

void sp_tensor_layer_backward_begin(struct sp_op_ctx *c, int i)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;
    bool apart = c->norms != NULL;
    struct sp_tensor_weights post = {.w = sp_weight(c, SP_BLOCK_POST, layer),
                                     .g = apart ? c->norms[SP_NORMS * i + 1]
                                                : sp_gradient(c, SP_BLOCK_POST, layer),
                                     .apart = apart};

    c->ctx.layer = layer;
    t->dr = sp_take_hidden(c, "dr");
    for (int j = 0; j < sp_tensor_shares(c); j++)
        t->shares[j].d_o =
            sp_pool_get(c->st->local, (size_t)c->sh->rows * (size_t)sp_op_share(c, j)->q_width,
                        sp_shape_elem(c->sh), "do");
    sp_tensor_post_backward(c, t, t->dy, &post, t->dr);
}

void sp_tensor_layer_backward_attention(struct sp_op_ctx *c, int i)
{
    c->ctx.layer = c->first + i;
    sp_tensor_attention_backward(c, i, c->st->local, 0);
}

void sp_tensor_layer_backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;
    bool apart = c->norms != NULL;
    struct sp_tensor *norm1 = sp_weight(c, SP_BLOCK_NORM1, layer), *n1 = NULL;
    struct sp_tensor_weights qkv = {.w = sp_weight(c, SP_BLOCK_QKV, layer),
                                    .g = apart ? c->norms[SP_NORMS * i + 2]
                                               : sp_gradient(c, SP_BLOCK_QKV, layer),
                                    .apart = apart};
    struct sp_shares dn;

    c->ctx.layer = layer;
    sp_pool_drop(&t->q);
    sp_pool_drop(&t->kv);
    sp_pool_drop(&t->lse);
    for (int j = 0; j < sp_tensor_shares(c); j++) {
        sp_pool_drop(&t->shares[j].q);
        sp_pool_drop(&t->shares[j].kv);
        sp_pool_drop(&t->shares[j].lse);
    }
    if (c->sh->model.qk_norm && !t->n1) {
        n1 = sp_take_hidden(c, "n1");
        sp_norm_again_insert(&c->ctx, c->sh, false, norm1, t->x, t->pre, n1);
    }
    sp_tensor_qkv_backward(c, t, t->n1 ? t->n1 : n1, &qkv, c->st->local, &dn);
    sp_pool_drop(&n1);
    c->ctx.output = i == 0; /* no other stage waits for the weight gradients that follow */
    c->ctx.exchanged = true;
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, false, false, norm1,
                           apart ? c->norms[SP_NORMS * i] : sp_gradient(c, SP_BLOCK_NORM1, layer),
                           t->x, t->pre, dn.at[0], dn.n - 1, dn.at + 1, t->dr, dx, 0);
    c->ctx.output = c->ctx.exchanged = false;
    sp_tensor_drop(&dn);
    sp_pool_drop(&t->dr);
    sp_pool_drop(&t->dy);
}

void sp_tensor_layer_wgrad(struct sp_op_ctx *c, int i)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;

    c->ctx.layer = layer;
    sp_tensor_attention_outputs(c, t);
    sp_pool_drop(&t->o);
    sp_tensor_post_wgrad(c, t, sp_weight(c, SP_BLOCK_POST, layer),
                         sp_gradient(c, SP_BLOCK_POST, layer), 0);
    if (!t->n1 && !t->shares[0].n1) {
        t->n1 = sp_take_hidden(c, "n1");
        sp_norm_again_insert(&c->ctx, c->sh, false, sp_weight(c, SP_BLOCK_NORM1, layer), t->x,
                             t->pre, t->n1);
    }
    sp_tensor_qkv_wgrad(c, t, t->n1, sp_gradient(c, SP_BLOCK_QKV, layer), false, t->stashed);
    sp_pool_drop(&t->n1);
    sp_pool_drop(&t->pre);
    sp_pool_drop(&t->x);
    t->stashed = 0;
}
