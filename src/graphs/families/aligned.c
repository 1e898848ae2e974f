/*
 * The layerwise family whose stages begin their ops together and share attention of them (policies/families/aligned): an op
 * is submitted leg by leg, each up to where it exchanges tensors with other stages. A stage attends to what it keeps of its
 * own slice, then to what it helps others with, and merges what it got help with.
 */
#include "graphs/families/layerwise.h"
#include "policies/families/aligned/aid.h"
#include "policies/families/aligned/aligned.h"
#include "starpipe/op.h"
#include <stdlib.h>

/* ---- what is exchanged ---------------------------------------------------------------------- */

/* Attention of an op, of one layer, over keys that its owner gives. */
struct shared {
    struct sp_aid aid;
    struct sp_op op; /* the owner's */
    int layer;
};

/* Of a step of the op. */
static int aids_at(const struct sp_op_ctx *c, int step, struct shared out[SP_SLOT_STAGES])
{
    const struct sp_plan *plan = c->g->cfg.plan;
    int layers = c->g->shape.model.layers, n;
    int slot =
        sp_slot_of(&plan->layout, c->st->index, &plan->programs[c->st->index].ops[c->ctx.op_index]);
    struct sp_aid aid[SP_SLOT_STAGES];

    n = sp_step_aid(plan, layers, slot, step, aid);
    for (int k = 0; k < n; k++) {
        out[k].aid = aid[k];
        out[k].layer = sp_step_layer(plan, layers, aid[k].owner, slot, step, &out[k].op);
    }
    return n;
}

static struct sp_tensor_id id_of(const struct shared *s, enum sp_tensor_kind kind, int slice)
{
    return (struct sp_tensor_id){.kind = (unsigned char)kind,
                                 .slice = (unsigned short)slice,
                                 .mb = s->op.mb,
                                 .at = s->layer};
}

static starpu_data_handle_t lent(const struct sp_op_ctx *c, const struct shared *s,
                                 enum sp_tensor_kind kind, int slice)
{
    struct sp_tensor_id id = id_of(s, kind, slice);

    return sp_store_find(&c->st->store, &id)->piece[0];
}

/* What a stage lends is in its flights: another holder of it. */
static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    const struct sp_plan *plan = g->cfg.plan;
    starpu_data_handle_t handle = NULL;

    if (id->kind == SP_TENSOR_X || id->kind == SP_TENSOR_DX)
        return;
    for (int chunk = 0; chunk < plan->layout.chunks && !handle; chunk++) {
        const struct sp_layer_flight *t;
        int first, count;

        sp_chunk_layers(plan, g->shape.model.layers, st->index, chunk, &first, &count);
        if (id->at < first || id->at >= first + count)
            continue;
        t = &st->flights[sp_flight_number(plan, chunk, id->mb, id->slice)].layers[id->at - first];
        handle = id->kind == SP_TENSOR_Q     ? t->q
                 : id->kind == SP_TENSOR_KV  ? t->kv
                 : id->kind == SP_TENSOR_O   ? t->o
                 : id->kind == SP_TENSOR_LSE ? t->lse
                 : id->kind == SP_TENSOR_DO  ? t->d_o
                                             : NULL;
    }
    if (!handle)
        return;
    sp_pool_hold(handle);
    sp_store_put(&st->store, id, 1, &handle, true);
}

/* ---- help ----------------------------------------------------------------------------------- */

/* What the helper leaves for the owner. */
static starpu_data_handle_t leave(const struct sp_op_ctx *c, const struct shared *s,
                                  enum sp_tensor_kind kind, int slice, size_t n, size_t elem)
{
    struct sp_tensor_id id = id_of(s, kind, slice);
    starpu_data_handle_t handle =
        sp_pool_get(c->st->boundary, n, elem, sp_tensor_name((enum sp_tensor_kind)kind));

    sp_store_put(&c->st->store, &id, 1, &handle, true);
    return handle;
}

/* The queries of the owner, and where the keys are that it gives. */
static struct sp_attn queries(const struct sp_op_ctx *c, const struct shared *s,
                              struct sp_attn_keys *keys)
{
    const struct sp_shape *all = sp_op_cut(c)->shapes, *sh = &all[s->op.slice];

    for (int j = 0; j < s->aid.keys.n; j++)
        keys[j] = (struct sp_attn_keys){.first = all[s->aid.keys.first + j].first,
                                        .len = all[s->aid.keys.first + j].seq};
    return (struct sp_attn){
        .q_len = sh->seq, .q_pos = sh->first, .n_keys = s->aid.keys.n, .keys = keys};
}

/* Gradients of the keys, which the helper adds up as long as it has these. Whether all of them are new; if only some are,
 * they are zero. */
static bool take_dkv(const struct sp_op_ctx *c, const struct sp_task_context *ctx,
                     const struct shared *s, struct sp_attn_keys *keys)
{
    size_t elem = sp_shape_elem(c->sh);

    for (int j = 0; j < s->aid.keys.n; j++) {
        int slice = s->aid.keys.first + j;
        size_t n = (size_t)sp_op_cut(c)->shapes[slice].rows * (size_t)c->sh->kv_width;

        if (sp_key_range_has(&s->aid.had, slice)) {
            keys[j].dkv = lent(c, s, SP_TENSOR_DKV, slice);
            continue;
        }
        keys[j].dkv = leave(c, s, SP_TENSOR_DKV, slice, n, elem);
        if (s->aid.had.n)
            sp_clear_insert(ctx, keys[j].dkv);
    }
    return s->aid.had.n == 0;
}

static void help(const struct sp_op_ctx *c, const struct shared *s)
{
    const struct sp_shape *sh = &sp_op_cut(c)->shapes[s->op.slice];
    size_t rows = (size_t)sh->rows, elem = sp_shape_elem(sh);
    struct sp_task_context ctx = c->ctx;
    struct sp_attn_keys keys[SP_MAX_SLICES];
    struct sp_attn at = queries(c, s, keys);
    int slice = s->op.slice;
    bool fresh;

    ctx.documents = sp_graph_documents(c->g, s->op.mb);
    ctx.mb = s->op.mb;
    ctx.slice = slice;
    ctx.layer = s->layer;
    ctx.exchanged = true;
    at.begins = at.ends = true;
    at.q = lent(c, s, SP_TENSOR_Q, slice);
    for (int j = 0; j < s->aid.keys.n; j++)
        keys[j].kv = lent(c, s, SP_TENSOR_KV, s->aid.keys.first + j);
    if (s->op.pass == SP_F) {
        at.o = leave(c, s, SP_TENSOR_O, slice, rows * (size_t)sh->q_width, elem);
        at.lse = leave(c, s, SP_TENSOR_LSE, slice, rows * (size_t)sh->model.heads, sizeof(float));
        sp_attn_fwd_insert(&ctx, sh, &at, 0);
        return;
    }
    at.o = lent(c, s, SP_TENSOR_O, slice);
    at.lse = lent(c, s, SP_TENSOR_LSE, slice);
    fresh = take_dkv(c, &ctx, s, keys);
    sp_attn_bwd_insert(&ctx, sh, &at, fresh, lent(c, s, SP_TENSOR_DO, slice),
                       leave(c, s, SP_TENSOR_DQ, slice, rows * (size_t)sh->q_width, elem), 0);
}

/* ---- what came of it ------------------------------------------------------------------------ */

/* The gradients of keys that a helper added up, when it is done with them, are added to those that there are. */
static void add_dkv(struct sp_op_ctx *c, int i, const struct shared *s)
{
    for (int j = s->aid.keys.first; j < s->aid.keys.first + s->aid.keys.n; j++) {
        starpu_data_handle_t *own = &c->fl[j - c->slice].layers[i].dkv, part;

        if (sp_key_range_has(&s->aid.goes_on, j))
            continue;
        part = lent(c, s, SP_TENSOR_DKV, j);
        if (*own) {
            sp_sum_insert(&c->ctx, c->sh->dtype, *own, part, false);
        } else { /* none of a later slice yet */
            sp_pool_hold(part);
            *own = part;
        }
    }
}

/* Part number k of those that the owner gave, in the order of their coming. */
static const struct sp_stored *part_of(const struct sp_op_ctx *c, const struct shared *s,
                                       enum sp_tensor_kind kind, int k)
{
    struct sp_tensor_id id = id_of(s, kind, s->op.slice);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    while (k-- > 0)
        t = sp_store_next(t);
    return t;
}

static void merge(struct sp_op_ctx *c, int i, const struct shared *s, int k, bool last)
{
    struct sp_layer_flight *t = &c->fl->layers[i];
    struct sp_attn_keys keys[SP_MAX_SLICES];
    struct sp_attn at = queries(c, s, keys);

    at.ends = last;
    at.o = t->o;
    at.lse = t->lse;
    at.sum = t->sum;
    c->ctx.exchanged = true;
    if (s->op.pass == SP_F) {
        sp_attn_merge_insert(&c->ctx, c->sh, &at, part_of(c, s, SP_TENSOR_O, k)->piece[0],
                             part_of(c, s, SP_TENSOR_LSE, k)->piece[0]);
    } else {
        sp_attn_add_insert(&c->ctx, c->sh, &at, t->dq, part_of(c, s, SP_TENSOR_DQ, k)->piece[0]);
        add_dkv(c, i, s);
    }
    c->ctx.exchanged = false;
}

/* ---- legs ----------------------------------------------------------------------------------- */

static void attend(struct sp_op_ctx *c, int step)
{
    struct shared aid[SP_SLOT_STAGES];
    int n = aids_at(c, step, aid);

    for (int k = 0; k < n; k++)
        c->given += aid[k].aid.owner == c->st->index ? aid[k].aid.keys.n : 0;
    sp_chunk_attend_layer(c, sp_layerwise_layer(c, step));
    c->given = 0;
    for (int k = 0; k < n; k++)
        if (aid[k].aid.helper == c->st->index)
            help(c, &aid[k]);
}

static void finish_layer(struct sp_op_ctx *c, int step)
{
    struct shared aid[SP_SLOT_STAGES];
    int n = aids_at(c, step, aid), i = sp_layerwise_layer(c, step), own = 0, merged = 0;

    c->ctx.layer = c->first + i;
    for (int k = 0; k < n; k++)
        own += aid[k].aid.owner == c->st->index;
    for (int k = 0; k < n; k++)
        if (aid[k].aid.owner == c->st->index) {
            merge(c, i, &aid[k], merged, merged == own - 1);
            merged++;
        }
    sp_drop(&c->fl->layers[i].sum);
    if (c->ctx.pass == 'F')
        c->flow = sp_layerwise_output(c, i);
    sp_chunk_end_layer(c, i, c->ctx.pass == 'F' ? c->flow : sp_layerwise_output(c, i),
                       sp_layerwise_to_head(c, i));
}

static void run_leg(struct sp_op_ctx *c, int leg)
{
    int step = leg / 2;

    if (leg % 2) {
        attend(c, step);
        return;
    }
    if (step == 0)
        sp_layerwise_begin(c);
    else
        finish_layer(c, step - 1);
    if (step < c->count)
        sp_chunk_begin_layer(c, sp_layerwise_layer(c, step));
    else
        sp_layerwise_end(c);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_op_ctx *c = &g->aligned[st->index - g->place.first_local];

    if (a->leg == 0)
        sp_layerwise_open(g, st, a->index, c);
    if (a->legs > 1)
        run_leg(c, a->leg);
    for (int leg = 0; a->legs == 1 && leg < sp_aligned_legs(c->count); leg++)
        run_leg(c, leg);
    if (a->leg == a->legs - 1)
        sp_op_close(&c->ctx);
}

/* ---- the family ------------------------------------------------------------------------------ */

static void destroy(struct sp_graph *g)
{
    sp_layerwise_destroy(g);
    free(g->aligned);
    g->aligned = NULL;
}

static int create(struct sp_graph *g)
{
    g->aligned = calloc((size_t)g->place.n_local, sizeof *g->aligned);
    return g->aligned ? sp_layerwise_create(g) : -ENOMEM;
}

const struct sp_graph_family sp_graph_aligned = {
    .create = create,
    .destroy = destroy,
    .run = run,
    .make = make,
    .discard = sp_layerwise_discard,
};
