/*
 * The layerwise family whose stages begin their ops together and share the work of attention
 * (policies/families/aligned). An op is submitted in parts, each up to the next exchange of tensors
 * with other stages. A stage first attends to the keys that it keeps of its own slice, then assists
 * the attention of other stages, and then merges the results of those that assist it.
 */
#include "graphs/families/layerwise.h"
#include "policies/families/aligned/assist.h"
#include "policies/families/aligned/aligned.h"
#include "starpipe/op.h"
#include "sp_error.h"
#include <stdlib.h>

/* ---- what is exchanged ---------------------------------------------------------------------- */

/* The assistance of stages to each other in a step of the op. */
static int assists_at(const struct sp_op_ctx *c, int step, struct sp_assist assist[SP_SLOT_STAGES])
{
    const struct sp_plan *plan = c->g->cfg.plan;
    int slot =
        sp_slot_of(&plan->layout, c->st->index, &plan->programs[c->st->index].ops[c->ctx.op_index]);

    return sp_step_assist(plan, c->g->shape.model.layers, slot, step, assist);
}

/* The parts of a slice's tokens; one part's shape for attention, and its tensors in a layer's
 * activations. */
static int parts_of(const struct sp_op_ctx *c)
{
    return sp_shape_parts(c->sh);
}

static const struct sp_shape *part_of_slice(const struct sp_op_ctx *c, int slice, int part)
{
    const struct sp_cut *cut = sp_op_cut(c);

    return cut->shares ? &cut->shares[slice * cut->n_shares + part] : &cut->shapes[slice];
}

static struct sp_tensor **tensor_of(struct sp_layer_activations *t, int kind, int part)
{
    return sp_heads_tensor(&t->heads[part], (enum sp_tensor_kind)kind);
}

/* The pieces of a tensor that arrived, one per part of the tokens. */
static struct sp_tensor *const *came(const struct sp_op_ctx *c, const struct sp_assist *assist,
                                     enum sp_tensor_kind kind, int slice)
{
    struct sp_tensor_id id = sp_assist_tensor(assist, kind, slice);

    return sp_store_find(&c->st->store, &id)->piece;
}

/* The activations of a layer of a stage; NULL: the layer is another stage's. */
static struct sp_layer_activations *activations_of(struct sp_graph *g, struct sp_stage *st,
                                                   const struct sp_tensor_id *id)
{
    const struct sp_plan *plan = g->cfg.plan;

    for (int chunk = 0; chunk < plan->layout.chunks; chunk++) {
        int first, count;

        sp_chunk_layers(plan, g->shape.model.layers, st->index, chunk, &first, &count);
        if (id->at >= first && id->at < first + count)
            return &st->activations[sp_activations_index(plan, chunk, id->mb, id->slice)]
                        .layers[id->at - first];
    }
    return NULL;
}

/* Puts a tensor that others are to read into the store. It lies among the stage's activations, and
 * the store holds it too. */
static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    bool shares = id->kind != SP_TENSOR_X && id->kind != SP_TENSOR_DX;
    struct sp_layer_activations *t = shares ? activations_of(g, st, id) : NULL;
    struct sp_tensor *piece[SP_MAX_SLICES];
    int n = sp_shape_parts(&g->shape);

    for (int j = 0; t && j < n; j++) {
        piece[j] = *tensor_of(t, id->kind, j);
        sp_pool_hold(piece[j]);
    }
    if (t)
        sp_store_put(&st->store, id, n, piece, true);
}

/* ---- help ----------------------------------------------------------------------------------- */

/* Takes the buffers for a result that an assisting stage leaves for the owner, of `width` columns.
 * Gradients of keys may stay at the owner until the backward of their slice, like its own, so they
 * come from the owner's pool. */
static struct sp_tensor *const *leave(const struct sp_op_ctx *c, const struct sp_assist *assist,
                                      enum sp_tensor_kind kind, int slice, int width, size_t elem)
{
    struct sp_stage *owner = sp_graph_stage(c->g, assist->owner);
    struct sp_pool *pool = owner && kind == SP_TENSOR_DKV ? owner->local : c->st->boundary;
    struct sp_tensor_id id = sp_assist_tensor(assist, kind, slice);
    struct sp_tensor *piece[SP_MAX_SLICES];

    for (int j = 0; j < parts_of(c); j++)
        piece[j] = sp_pool_get(pool, (size_t)part_of_slice(c, slice, j)->rows * (size_t)width, elem,
                               sp_tensor_name(kind));
    sp_store_put(&c->st->store, &id, parts_of(c), piece, true);
    return came(c, assist, kind, slice);
}

/* The queries of one part of the owner's slice, and the positions of the keys that the owner gives
 * away. */
static struct sp_attn queries(const struct sp_op_ctx *c, const struct sp_assist *assist, int part,
                              struct sp_attn_keys *keys)
{
    const struct sp_shape *sh = part_of_slice(c, assist->op.slice, part);
    int n = 0;

    for (int j = 0; j < assist->keys.n; j++)
        for (int k = 0; k < parts_of(c); k++) {
            const struct sp_shape *of = part_of_slice(c, assist->keys.first + j, k);

            keys[n++] = (struct sp_attn_keys){.first = of->first, .len = of->seq};
        }
    return (struct sp_attn){.q_len = sh->seq, .q_pos = sh->first, .n_keys = n, .keys = keys};
}

/* Takes the gradients of the keys, which the assisting stage sums while it has these keys. Returns
 * true if all of them are new; if only some are new, it clears those. */
static bool take_dkv(const struct sp_op_ctx *c, const struct sp_task_context *ctx,
                     const struct sp_assist *assist)
{
    const struct sp_shape *sh = part_of_slice(c, assist->op.slice, 0);

    for (int j = assist->keys.first; j < assist->keys.first + assist->keys.n; j++) {
        struct sp_tensor *const *dkv;

        if (sp_key_range_has(&assist->had, j))
            continue;
        dkv = leave(c, assist, SP_TENSOR_DKV, j, sh->kv_width, sp_shape_elem(sh));
        for (int k = 0; assist->had.n && k < parts_of(c); k++)
            sp_clear_insert(ctx, dkv[k]);
    }
    return assist->had.n == 0;
}

/* Finds the keys that the assisting stage received and, in a backward, their gradients. */
static void find_keys(const struct sp_op_ctx *c, const struct sp_assist *assist,
                      struct sp_attn_keys *keys)
{
    for (int j = assist->keys.first; j < assist->keys.first + assist->keys.n; j++)
        for (int k = 0; k < parts_of(c); k++, keys++) {
            keys->kv = came(c, assist, SP_TENSOR_KV, j)[k];
            if (assist->op.pass == SP_B)
                keys->dkv = came(c, assist, SP_TENSOR_DKV, j)[k];
        }
}

/* The tensors that an assisting stage reads and writes for the owner's queries, [parts of the
 * tokens]. */
struct shared_keys {
    struct sp_tensor *const *q, *const *o, *const *lse, *const *d_o, *const *dq;
};

static struct shared_keys find_queries(const struct sp_op_ctx *c, const struct sp_assist *assist)
{
    const struct sp_shape *sh = part_of_slice(c, assist->op.slice, 0);
    int slice = assist->op.slice, heads = sh->q_width / sh->model.head_dim;
    struct shared_keys l = {.q = came(c, assist, SP_TENSOR_Q, slice)};

    if (assist->op.pass == SP_F) {
        l.o = leave(c, assist, SP_TENSOR_O, slice, sh->q_width, sp_shape_elem(sh));
        l.lse = leave(c, assist, SP_TENSOR_LSE, slice, heads, sizeof(float));
    } else {
        l.o = came(c, assist, SP_TENSOR_O, slice);
        l.lse = came(c, assist, SP_TENSOR_LSE, slice);
        l.d_o = came(c, assist, SP_TENSOR_DO, slice);
        l.dq = leave(c, assist, SP_TENSOR_DQ, slice, sh->q_width, sp_shape_elem(sh));
    }
    return l;
}

static void help(const struct sp_op_ctx *c, const struct sp_assist *assist)
{
    struct sp_task_context ctx = c->ctx;
    struct shared_keys l = find_queries(c, assist);
    bool forward = assist->op.pass == SP_F, fresh;

    ctx.documents = sp_graph_documents(c->g, assist->op.mb);
    ctx.mb = assist->op.mb;
    ctx.slice = assist->op.slice;
    ctx.layer = assist->layer;
    ctx.exchanged = true;
    fresh = !forward && take_dkv(c, &ctx, assist);
    for (int j = 0; j < parts_of(c); j++) {
        const struct sp_shape *sh = part_of_slice(c, assist->op.slice, j);
        struct sp_attn_keys keys[SP_MAX_SLICES];
        struct sp_attn at = queries(c, assist, j, keys);

        find_keys(c, assist, keys);
        at.begins = at.ends = true;
        at.q = l.q[j];
        at.o = l.o[j];
        at.lse = l.lse[j];
        if (forward)
            sp_attn_fwd_insert(&ctx, sh, &at, 0);
        else
            sp_attn_bwd_insert(&ctx, sh, &at, fresh && j == 0, l.d_o[j], l.dq[j], 0);
    }
}

/* ---- what came of it ------------------------------------------------------------------------ */

/* Adds the gradients of keys that an assisting stage summed to the owner's, once that stage is done
 * with these keys. */
static void add_dkv(struct sp_op_ctx *c, int i, const struct sp_assist *assist)
{
    for (int j = assist->keys.first; j < assist->keys.first + assist->keys.n; j++)
        for (int k = 0; !sp_key_range_has(&assist->goes_on, j) && k < parts_of(c); k++) {
            struct sp_tensor *part = came(c, assist, SP_TENSOR_DKV, j)[k];
            struct sp_tensor **own = tensor_of(&c->fl[j - c->slice].layers[i], SP_TENSOR_DKV, k);

            if (*own) {
                sp_sum_insert(&c->ctx, c->sh->dtype, *own, part, false);
            } else { /* no later slice has made one yet */
                sp_pool_hold(part);
                *own = part;
            }
        }
}

/* The pieces that the k-th assisting stage sent, in the order of arrival. */
static struct sp_tensor *const *sent(const struct sp_op_ctx *c, const struct sp_assist *assist,
                                     enum sp_tensor_kind kind, int k)
{
    struct sp_tensor_id id = sp_assist_tensor(assist, kind, assist->op.slice);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    while (k-- > 0)
        t = sp_store_next(t);
    return t->piece;
}

static void merge(struct sp_op_ctx *c, int i, const struct sp_assist *assist, int k, bool last)
{
    struct sp_layer_activations *t = &c->fl->layers[i];

    c->ctx.exchanged = true;
    for (int j = 0; j < parts_of(c); j++) {
        const struct sp_shape *sh = part_of_slice(c, assist->op.slice, j);
        struct sp_attn_keys keys[SP_MAX_SLICES];
        struct sp_attn at = queries(c, assist, j, keys);

        at.ends = last;
        at.o = *tensor_of(t, SP_TENSOR_O, j);
        at.lse = *tensor_of(t, SP_TENSOR_LSE, j);
        at.sum = t->heads[j].sum;
        if (assist->op.pass == SP_F)
            sp_attn_merge_insert(&c->ctx, sh, &at, sent(c, assist, SP_TENSOR_O, k)[j],
                                 sent(c, assist, SP_TENSOR_LSE, k)[j]);
        else
            sp_attn_add_insert(&c->ctx, sh, &at, *tensor_of(t, SP_TENSOR_DQ, j),
                               sent(c, assist, SP_TENSOR_DQ, k)[j]);
    }
    if (assist->op.pass == SP_B)
        add_dkv(c, i, assist);
    c->ctx.exchanged = false;
}

/* ---- parts of an op -------------------------------------------------------------------------- */

static void attend(struct sp_op_ctx *c, int step)
{
    struct sp_assist assist[SP_SLOT_STAGES];
    int n = assists_at(c, step, assist);

    for (int k = 0; k < n; k++)
        c->given += assist[k].owner == c->st->index ? assist[k].keys.n : 0;
    sp_chunk_attend_layer(c, sp_chunk_layer(c, step));
    c->given = 0;
    for (int k = 0; k < n; k++)
        if (assist[k].helper == c->st->index)
            help(c, &assist[k]);
}

static void drop_sums(const struct sp_op_ctx *c, struct sp_layer_activations *t)
{
    for (int j = 0; j < parts_of(c); j++)
        sp_pool_drop(&t->heads[j].sum);
}

static void finish_layer(struct sp_op_ctx *c, int step)
{
    struct sp_assist assist[SP_SLOT_STAGES];
    int n = assists_at(c, step, assist), i = sp_chunk_layer(c, step), own = 0, merged = 0;

    c->ctx.layer = c->first + i;
    for (int k = 0; k < n; k++)
        own += assist[k].owner == c->st->index;
    for (int k = 0; k < n; k++)
        if (assist[k].owner == c->st->index) {
            merge(c, i, &assist[k], merged, merged == own - 1);
            merged++;
        }
    drop_sums(c, &c->fl->layers[i]);
    sp_chunk_end_layer(c, i, sp_layerwise_output(c, i), sp_layerwise_to_head(c, i));
}

static void run_part(struct sp_op_ctx *c, int op_part)
{
    int step = op_part / 2;

    if (op_part % 2) {
        attend(c, step);
        return;
    }
    if (step == 0)
        sp_layerwise_begin(c);
    else
        finish_layer(c, step - 1);
    if (step < c->count)
        sp_chunk_begin_layer(c, sp_chunk_layer(c, step));
    else
        sp_layerwise_end(c);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_op_ctx *under_way = g->own, *c = &under_way[st->index - g->place.first_local];

    if (a->op_part == 0)
        sp_layerwise_open(g, st, a->index, c);
    if (a->op_parts > 1)
        run_part(c, a->op_part);
    for (int op_part = 0; a->op_parts == 1 && op_part < sp_aligned_parts(c->count); op_part++)
        run_part(c, op_part);
    if (a->op_part == a->op_parts - 1)
        sp_op_close(&c->ctx);
}

/* ---- the family ------------------------------------------------------------------------------ */

static void destroy(struct sp_graph *g)
{
    sp_layerwise_destroy(g);
    free(g->own);
    g->own = NULL;
}

static int create(struct sp_graph *g)
{
    g->own = calloc((size_t)g->place.n_local, sizeof(struct sp_op_ctx));
    return g->own ? sp_layerwise_create(g) : -ENOMEM;
}

const struct sp_graph_family sp_graph_aligned = {
    .create = create,
    .destroy = destroy,
    .run = run,
    .make = make,
    .discard = sp_layerwise_discard,
    .overwrites = true,
};
