#include "graphs/layer/layer.h"
#include "graphs/layer/attention.h"
#include "graphs/offload/offload.h"
#include "graphs/tensor/halves.h"
#include "graphs/offload/streamed_keys.h"

/* ---- handles -------------------------------------------------------------------------- */

static struct sp_tensor *take(struct sp_op_ctx *c, size_t elements, const char *name)
{
    return sp_pool_get(c->st->local, elements, sp_shape_elem(c->sh), name);
}

/* ---- forward -------------------------------------------------------------------------- */

/* Bytes of a handle if it is kept and counted as stashed, else 0. */
static int64_t counted(const struct sp_keep *keep, bool kept, struct sp_tensor *handle)
{
    return keep->stash && kept ? (int64_t)sp_tensor_size(handle) : 0;
}

/* The same for a tensor that attention reads or writes, in whatever buffers. */
static int64_t counted_part(const struct sp_op_ctx *c, const struct sp_keep *keep, bool kept,
                            enum sp_stash_tensor tensor)
{
    return keep->stash && kept ? (int64_t)(sp_shape_elem(c->sh) *
                                           sp_stash_elements(c->sh, SP_RECOMPUTE_NONE, tensor))
                               : 0;
}

/* The shape that sizes a buffer: a stashed tensor has the size of its own slice. */
static const struct sp_shape *size_of(const struct sp_op_ctx *c, struct sp_keep keep, bool kept)
{
    return keep.stash && kept ? c->sh : sp_op_room(c);
}

/* Returns bytes stashed. */
static int64_t forward_pre(struct sp_op_ctx *c, int i, struct sp_keep keep, bool keep_kv,
                           bool stash_x)
{
    const struct sp_shape *sh = c->sh;
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;
    struct sp_tensor *kv = NULL; /* if they were kept for later slices, they exist */
    int64_t stashed = counted_part(c, &keep, keep.qkv, SP_STASH_Q) +
                      counted_part(c, &keep, keep_kv, SP_STASH_KV) + counted(&keep, stash_x, t->x);

    t->q = take(c, (size_t)size_of(c, keep, keep.qkv)->rows * (size_t)sh->q_width, "q");
    if (!sp_attention_has_keys(t))
        t->kv = kv = take(c, (size_t)sh->rows * (size_t)sh->kv_width, "kv");
    if (keep.saved) {
        t->pre =
            take(c, sp_shape_pre_saved(size_of(c, keep, true), keep.keep_outputs), "pre saved");
        stashed += counted(&keep, true, t->pre);
    }
    sp_pre_fwd_insert(
        &c->ctx, sh,
        &(struct sp_pre){
            .x = t->x, .saved = t->pre, .q = t->q, .kv = kv, .keep_outputs = keep.keep_outputs},
        sp_weight(c, SP_BLOCK_NORM1, layer), sp_weight(c, SP_BLOCK_QKV, layer), stashed);
    sp_attention_share_out(c, t, kv != NULL);
    return stashed;
}

static void forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x)
{
    c->ctx.layer = c->first + i;
    c->fl->layers[i].stashed += forward_pre(c, i, keep, sp_keeps_keys(c, keep), stash_x);
    if (c->share && c->ctx.pass == 'G')
        c->share(c, i);
}

static void forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep)
{
    int64_t of_o = counted_part(c, &keep, keep.attn, SP_STASH_O) +
                   counted_part(c, &keep, keep.attn, SP_STASH_LSE);

    sp_attention_forward(c, i, of_o, c->st->local);
    c->fl->layers[i].stashed += of_o;
}

static void forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y,
                        bool stash_y)
{
    const struct sp_shape *size = size_of(c, keep, true);
    struct sp_layer_activations *t = &c->fl->layers[i];
    int64_t of_y = stash_y ? (int64_t)sp_tensor_size(y) : 0, post = 0;

    c->ctx.layer = c->first + i;
    if (keep.saved) {
        t->post = take(c,
                       keep.residual ? sp_shape_residual_saved(size)
                                     : sp_shape_post_saved(size, keep.keep_outputs),
                       keep.residual ? "residual" : "post saved");
        post = counted(&keep, true, t->post);
    }
    if (keep.stash)
        sp_offload_gate(c, 2 * i + 1);
    sp_post_fwd_insert(&c->ctx, c->sh,
                       &(struct sp_post){.x = t->x,
                                         .o = t->o,
                                         .saved = t->post,
                                         .keep_outputs = keep.keep_outputs,
                                         .residual = keep.residual},
                       sp_weight(c, SP_BLOCK_POST, c->first + i), y, post + of_y);
    t->stashed += post; /* the head frees y and counts that */
    sp_attention_drop(c, t, !keep.qkv, !sp_keeps_keys(c, keep), !keep.attn);
}

void sp_layer_forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_forward_begin : forward_begin)(c, i, keep, stash_x);
}

void sp_layer_forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_forward_attention : forward_attention)(c, i, keep);
}

void sp_layer_forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y,
                          bool stash_y)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_forward_end : forward_end)(c, i, keep, y, stash_y);
}

void sp_layer_forward(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x,
                      struct sp_tensor *y, bool stash_y)
{
    sp_layer_forward_begin(c, i, keep, stash_x);
    if (!keep.has_attn)
        sp_layer_forward_attention(c, i, keep);
    sp_layer_forward_end(c, i, keep, y, stash_y);
}

void sp_layers_recompute(struct sp_op_ctx *c, int a, int b)
{
    struct sp_keep keep = {.saved = true, .keep_outputs = true, .qkv = true, .attn = true};

    for (int i = a; i < b; i++) {
        bool whole = sp_chunk_recompute(c, i) == SP_RECOMPUTE_FULL;
        struct sp_tensor *y = NULL;

        sp_streamed_keys_next_layer(c, i);
        keep.has_attn = !whole;
        keep.residual = sp_chunk_cuts_mlp(c, i);
        if (whole && i < b - 1)
            y = c->fl->layers[i + 1].x = sp_take_hidden_room(c, "x");
        sp_layer_forward(c, i, keep, false, y, false);
    }
}

/* ---- backward ------------------------------------------------------------------------- */

/* True unless the forward dropped the outputs of norms and activations, and only these. */
static bool keeps_outputs(const struct sp_op_ctx *c, int i)
{
    return sp_chunk_recompute(c, i) != SP_RECOMPUTE_SELECTIVE;
}

/* Computes dr, which is kept, and d_o; if the MLP comes in chunks, also the weight gradients of
 * post. */
static void backward_begin(struct sp_op_ctx *c, int i)
{
    const struct sp_shape *sh = c->sh, *room = sp_op_room(c);
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;

    c->ctx.layer = layer;
    t->d_o = take(c, (size_t)room->rows * (size_t)room->q_width, "do");
    t->dr = sp_take_hidden_room(c, "dr");
    if (sp_chunk_cuts_mlp(c, i)) {
        sp_post_again_insert(&c->ctx, sh,
                             &(struct sp_post){.o = t->o, .saved = t->post, .residual = true},
                             sp_weight(c, SP_BLOCK_POST, layer),
                             sp_gradient(c, SP_BLOCK_POST, layer), t->dy, t->dr, t->d_o, 0);
        sp_pool_drop(&t->post);
        return;
    }
    t->du = take(c, (size_t)room->rows * (size_t)room->up_width, "du");
    sp_post_bwd_insert(&c->ctx, sh,
                       &(struct sp_post){.saved = t->post, .keep_outputs = keeps_outputs(c, i)},
                       sp_weight(c, SP_BLOCK_POST, layer),
                       c->norms ? c->norms[SP_NORMS * i + 1] : sp_gradient(c, SP_BLOCK_POST, layer),
                       c->norms != NULL, t->dy, t->du, t->dr, t->d_o);
}

static void backward_attention(struct sp_op_ctx *c, int i)
{
    c->ctx.layer = c->first + i;
    sp_attention_backward(c, i, c->fl->layers[i].d_o, c->st->local, 0);
}

static void backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx)
{
    const struct sp_shape *sh = c->sh;
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;

    c->ctx.layer = layer;
    if (c->share)
        c->share(c, i);
    sp_pool_drop(&t->d_o);
    sp_pool_drop(&t->q);
    sp_pool_drop(&t->kv);
    sp_pool_drop(&t->lse);

    c->ctx.output = i == 0; /* no other stage waits for the weight gradients that follow */
    sp_pre_bwd_insert(
        &c->ctx, sh,
        &(struct sp_pre){.x = t->x, .saved = t->pre, .keep_outputs = keeps_outputs(c, i)},
        sp_weight(c, SP_BLOCK_NORM1, layer), sp_weight(c, SP_BLOCK_QKV, layer),
        c->norms ? c->norms[SP_NORMS * i] : sp_gradient(c, SP_BLOCK_NORM1, layer),
        c->norms ? c->norms[SP_NORMS * i + 2] : sp_gradient(c, SP_BLOCK_QKV, layer),
        c->norms != NULL, t->dq, t->dkv, t->dr, dx);
    c->ctx.output = false;
}

static void layer_wgrad(struct sp_op_ctx *c, int i)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int layer = c->first + i;

    c->ctx.layer = layer;
    if (t->post) /* the backward has not computed them yet */
        sp_post_wgrad_insert(
            &c->ctx, c->sh,
            &(struct sp_post){.o = t->o, .saved = t->post, .keep_outputs = keeps_outputs(c, i)},
            sp_weight(c, SP_BLOCK_POST, layer), sp_gradient(c, SP_BLOCK_POST, layer), t->dy, t->du,
            t->dr, 0);
    sp_pool_drop(&t->post);
    sp_pool_drop(&t->o);
    sp_pool_drop(&t->du);
    sp_pool_drop(&t->dr);
    sp_pool_drop(&t->dy);

    sp_pre_wgrad_insert(
        &c->ctx, c->sh,
        &(struct sp_pre){.x = t->x, .saved = t->pre, .keep_outputs = keeps_outputs(c, i)},
        sp_weight(c, SP_BLOCK_NORM1, layer), t->dq, t->dkv, sp_gradient(c, SP_BLOCK_QKV, layer),
        t->stashed);
    sp_pool_drop(&t->pre);
    sp_pool_drop(&t->dq);
    sp_pool_drop(&t->dkv);
    sp_pool_drop(&t->x);
    t->stashed = 0;
}

void sp_layer_backward_begin(struct sp_op_ctx *c, int i)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_backward_begin : backward_begin)(c, i);
}

void sp_layer_backward_attention(struct sp_op_ctx *c, int i)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_backward_attention : backward_attention)(c, i);
}

void sp_layer_backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_backward_end : backward_end)(c, i, dx);
}

void sp_layer_backward(struct sp_op_ctx *c, int i, struct sp_tensor *dx)
{
    sp_layer_backward_begin(c, i);
    sp_layer_backward_attention(c, i);
    sp_layer_backward_end(c, i, dx);
}

void sp_layer_wgrad(struct sp_op_ctx *c, int i)
{
    (c->sh->tensor > 1 ? sp_tensor_layer_wgrad : layer_wgrad)(c, i);
}

void sp_layer_drop(struct sp_layer_activations *t, int parts)
{
    struct sp_tensor **const left[] = {&t->x,   &t->pre,  &t->q,  &t->kv, &t->o,
                                       &t->lse, &t->post, &t->n1, &t->r,  &t->n2};

    for (size_t k = 0; k < sizeof left / sizeof *left; k++)
        sp_pool_drop(left[k]);
    for (int j = 0; j < parts; j++)
        sp_heads_drop(sp_activations_first(t) + j);
    *t = (struct sp_layer_activations){.heads = t->heads, .shares = t->shares};
}
