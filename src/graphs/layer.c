#include "graphs/layer.h"
#include "graphs/offload.h"

/* ---- handles -------------------------------------------------------------------------- */

static starpu_data_handle_t take(struct sp_op_ctx *c, size_t elements, const char *name)
{
    return sp_pool_get(c->st->local, elements, sp_shape_elem(c->sh), name);
}

static size_t hidden_elements(const struct sp_op_ctx *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->model.hidden;
}

starpu_data_handle_t sp_take_hidden(struct sp_op_ctx *c, const char *name)
{
    return take(c, hidden_elements(c), name);
}

starpu_data_handle_t sp_take_boundary(struct sp_op_ctx *c, struct sp_stage *st, const char *name)
{
    return sp_pool_get(st->boundary, hidden_elements(c), sp_shape_elem(c->sh), name);
}

void sp_drop(starpu_data_handle_t *handle)
{
    if (*handle)
        sp_pool_put(*handle);
    *handle = NULL;
}

starpu_data_handle_t sp_weight(struct sp_op_ctx *c, enum sp_block_kind kind, int layer)
{
    if (c->w && layer >= 0)
        return c->w[sp_layer_block_at(kind, layer - c->first)];
    if (c->end_w && layer < 0)
        return c->end_w[kind];
    return sp_stage_weight(c->st, kind, layer);
}

starpu_data_handle_t sp_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer)
{
    if (c->gradient && layer >= 0)
        return c->gradient[sp_layer_block_at(kind, layer - c->first)];
    if (c->end_gradient && layer < 0)
        return c->end_gradient[kind];
    return sp_stage_gradient(c->st, kind, layer);
}

/* ---- forward -------------------------------------------------------------------------- */

struct sp_keep sp_keep_in_forward(enum sp_recompute recompute)
{
    return (struct sp_keep){.saved = sp_stash_keeps(recompute, SP_STASH_PRE),
                            .keep_outputs = recompute == SP_RECOMPUTE_NONE,
                            .qkv = sp_stash_keeps(recompute, SP_STASH_Q),
                            .attn = sp_stash_keeps(recompute, SP_STASH_O),
                            .stash = true};
}

/* Bytes of a handle if it is kept and counted. */
static int64_t counted(const struct sp_keep *keep, bool kept, starpu_data_handle_t handle)
{
    return keep->stash && kept ? (int64_t)starpu_data_get_size(handle) : 0;
}

static const struct sp_cut *cut_of(const struct sp_op_ctx *c)
{
    return c->cut ? c->cut : &c->g->cuts[0];
}

/* Attention of layer i of this slice over the keys and values of the slices up to it. */
struct attention {
    struct sp_attn at;
    int len[SP_MAX_SLICES];
    starpu_data_handle_t kv[SP_MAX_SLICES];
};

static void attention_of(const struct sp_op_ctx *c, int i, struct attention *a)
{
    const struct sp_layer_flight *t = &c->fl->layers[i];

    for (int j = 0; j <= c->slice; j++) {
        a->len[j] = cut_of(c)->shapes[j].seq;
        a->kv[j] = c->fl[j - c->slice].layers[i].kv;
    }
    a->at = (struct sp_attn){
        .slice = c->slice,
        .q_len = c->sh->seq,
        .q_pos = c->sh->first,
        .n_kv = c->slice + 1,
        .kv_len = a->len,
        .q = t->q,
        .o = t->o,
        .lse = t->lse,
        .kv = a->kv,
    };
}

static bool is_sliced(const struct sp_op_ctx *c)
{
    return cut_of(c)->n > 1;
}

enum sp_recompute sp_chunk_recompute(const struct sp_op_ctx *c, int i)
{
    return sp_layer_recompute(c->g->cfg.plan, c->g->cfg.recompute, c->first + i);
}

void sp_layer_forward(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x,
                      starpu_data_handle_t y, bool stash_y)
{
    const struct sp_shape *sh = c->sh;
    struct sp_layer_flight *t = &c->fl->layers[i];
    bool keep_kv = keep.qkv || is_sliced(c); /* later slices read keys and values */
    int layer = c->first + i;
    size_t T = (size_t)sh->rows;
    starpu_data_handle_t pre_kv = NULL; /* where they stayed for later slices, they are there */
    int64_t pre, attn = 0, post = stash_y ? (int64_t)starpu_data_get_size(y) : 0;

    c->ctx.layer = layer;
    t->q = take(c, T * (size_t)sh->q_width, "q");
    if (!t->kv)
        t->kv = pre_kv = take(c, T * (size_t)sh->kv_width, "kv");
    pre = counted(&keep, keep.qkv, t->q) + counted(&keep, keep_kv, t->kv);
    pre += counted(&keep, stash_x, t->x);
    if (keep.saved) {
        t->pre = take(c, sp_shape_pre_saved(sh, keep.keep_outputs), "pre saved");
        t->post = take(c, sp_shape_post_saved(sh, keep.keep_outputs), "post saved");
        pre += counted(&keep, true, t->pre);
        post += counted(&keep, true, t->post);
    }
    sp_pre_fwd_insert(
        &c->ctx, sh,
        &(struct sp_pre){
            .x = t->x, .saved = t->pre, .q = t->q, .kv = pre_kv, .keep_outputs = keep.keep_outputs},
        sp_weight(c, SP_BLOCK_NORM1, layer), sp_weight(c, SP_BLOCK_QKV, layer), pre);
    if (c->share && c->ctx.pass == 'G')
        c->share(c, i);
    if (!keep.has_attn) {
        struct attention a;

        t->o = take(c, T * (size_t)sh->q_width, "o");
        t->lse = take(c, sp_shape_f32(sh, T * (size_t)sh->model.heads), "lse");
        attn = counted(&keep, keep.attn, t->o) + counted(&keep, keep.attn, t->lse);
        attention_of(c, i, &a);
        sp_attn_fwd_insert(&c->ctx, sh, &a.at, attn);
    }
    if (keep.stash)
        sp_offload_gate(c, 2 * i + 1);
    sp_post_fwd_insert(
        &c->ctx, sh,
        &(struct sp_post){
            .x = t->x, .o = t->o, .saved = t->post, .keep_outputs = keep.keep_outputs},
        sp_weight(c, SP_BLOCK_POST, layer), y, post);
    /* y is freed by the head, which counts it. */
    t->stashed += pre + attn + post - (stash_y ? (int64_t)starpu_data_get_size(y) : 0);

    if (!keep.qkv)
        sp_drop(&t->q);
    if (!keep_kv)
        sp_drop(&t->kv);
    if (!keep.attn) {
        sp_drop(&t->o);
        sp_drop(&t->lse);
    }
}

void sp_layers_recompute(struct sp_op_ctx *c, int a, int b)
{
    struct sp_keep keep = {.saved = true, .keep_outputs = true, .qkv = true, .attn = true};

    for (int i = a; i < b; i++) {
        bool whole = sp_chunk_recompute(c, i) == SP_RECOMPUTE_FULL;
        starpu_data_handle_t y = NULL;

        keep.has_attn = !whole;
        if (whole && i < b - 1)
            y = c->fl->layers[i + 1].x = sp_take_hidden(c, "x");
        sp_layer_forward(c, i, keep, false, y, false);
    }
}

/* ---- backward ------------------------------------------------------------------------- */

/* Norm and activation outputs are at hand unless the forward dropped just these. */
static bool keeps_outputs(const struct sp_op_ctx *c, int i)
{
    return sp_chunk_recompute(c, i) != SP_RECOMPUTE_SELECTIVE;
}

/* The gradients of the keys and values that a slice saw: made by the last slice, which is the
 * first to come back, and complete in each slice once its own backward added to them. Whether they are
 * made now. */
static bool take_dkv(struct sp_op_ctx *c, int i, starpu_data_handle_t dkv[SP_MAX_SLICES])
{
    bool first = !c->fl->layers[i].dkv;

    for (int j = 0; j <= c->slice; j++) {
        const struct sp_shape *sh = &cut_of(c)->shapes[j];
        struct sp_layer_flight *t = &c->fl[j - c->slice].layers[i];

        if (!t->dkv)
            t->dkv = take(c, (size_t)sh->rows * (size_t)sh->kv_width, "dkv");
        dkv[j] = t->dkv;
    }
    return first;
}

void sp_layer_backward(struct sp_op_ctx *c, int i, starpu_data_handle_t dx)
{
    const struct sp_shape *sh = c->sh;
    struct sp_layer_flight *t = &c->fl->layers[i];
    int layer = c->first + i;
    bool first;
    size_t T = (size_t)sh->rows;
    starpu_data_handle_t d_o = take(c, T * (size_t)sh->q_width, "do"), dkv[SP_MAX_SLICES];
    struct attention a;

    c->ctx.layer = layer;
    t->du = take(c, T * (size_t)sh->up_width, "du");
    t->dr = sp_take_hidden(c, "dr");
    sp_post_bwd_insert(&c->ctx, sh,
                       &(struct sp_post){.saved = t->post, .keep_outputs = keeps_outputs(c, i)},
                       sp_weight(c, SP_BLOCK_POST, layer),
                       c->norms ? c->norms[SP_NORMS * i + 1] : sp_gradient(c, SP_BLOCK_POST, layer),
                       c->norms != NULL, t->dy, t->du, t->dr, d_o);

    t->dq = take(c, T * (size_t)sh->q_width, "dq");
    first = take_dkv(c, i, dkv);
    attention_of(c, i, &a);
    sp_attn_bwd_insert(&c->ctx, sh, &a.at, first, d_o, t->dq, dkv, 0);
    if (c->share)
        c->share(c, i);
    sp_drop(&d_o);
    sp_drop(&t->q);
    sp_drop(&t->kv);
    sp_drop(&t->lse);

    c->ctx.output = i == 0; /* the weight gradients that follow are nobody else's */
    sp_pre_bwd_insert(
        &c->ctx, sh,
        &(struct sp_pre){.x = t->x, .saved = t->pre, .keep_outputs = keeps_outputs(c, i)},
        sp_weight(c, SP_BLOCK_NORM1, layer), sp_weight(c, SP_BLOCK_QKV, layer),
        c->norms ? c->norms[SP_NORMS * i] : sp_gradient(c, SP_BLOCK_NORM1, layer),
        c->norms ? c->norms[SP_NORMS * i + 2] : sp_gradient(c, SP_BLOCK_QKV, layer),
        c->norms != NULL, t->dq, t->dkv, t->dr, dx);
    c->ctx.output = false;
}

void sp_layer_wgrad(struct sp_op_ctx *c, int i)
{
    struct sp_layer_flight *t = &c->fl->layers[i];
    int layer = c->first + i;

    c->ctx.layer = layer;
    sp_post_wgrad_insert(
        &c->ctx, c->sh,
        &(struct sp_post){.o = t->o, .saved = t->post, .keep_outputs = keeps_outputs(c, i)},
        sp_weight(c, SP_BLOCK_POST, layer), sp_gradient(c, SP_BLOCK_POST, layer), t->dy, t->du,
        t->dr, 0);
    sp_drop(&t->post);
    sp_drop(&t->o);
    sp_drop(&t->du);
    sp_drop(&t->dr);
    sp_drop(&t->dy);

    sp_pre_wgrad_insert(
        &c->ctx, c->sh,
        &(struct sp_pre){.x = t->x, .saved = t->pre, .keep_outputs = keeps_outputs(c, i)},
        sp_weight(c, SP_BLOCK_NORM1, layer), t->dq, t->dkv, sp_gradient(c, SP_BLOCK_QKV, layer),
        t->stashed);
    sp_drop(&t->pre);
    sp_drop(&t->dq);
    sp_drop(&t->dkv);
    sp_drop(&t->x);
    t->stashed = 0;
}
