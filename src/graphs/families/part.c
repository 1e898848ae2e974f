#include "graphs/families/part.h"
#include "graphs/weights/zero.h"
#include "policies/families/work.h"
#include "sp_error.h"

struct sp_part_activations *sp_part_activations_of(const struct sp_op_ctx *op, int k)
{
    size_t blocks = (size_t)op->sh->model.layers + 1, slices = (size_t)op->g->cuts[0].n;
    struct sp_part_activations *all = op->g->own;

    return &all[((size_t)op->mb * blocks + (size_t)k) * slices + (size_t)op->slice];
}

struct sp_pool *sp_part_pool(const struct sp_part_op *c, int stage)
{
    struct sp_stage *st = sp_graph_stage(c->op.g, stage);

    return (st ? st : c->op.st)->boundary;
}

struct sp_tensor *sp_part_take_for(const struct sp_part_op *c, int stage, size_t elements,
                                   const char *name)
{
    return sp_pool_get(sp_part_pool(c, stage), elements, sp_shape_elem(c->op.sh), name);
}

/* ---- the store ------------------------------------------------------------------------------- */

static struct sp_tensor_id id_of(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    return (struct sp_tensor_id){.kind = (unsigned char)kind,
                                 .slice = (unsigned short)c->op.slice,
                                 .mb = c->op.mb,
                                 .at = layer};
}

struct sp_tensor *sp_part_stored(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    const struct sp_stored *t = sp_store_find(&c->op.st->store, &id);

    return t ? t->piece[0] : NULL;
}

struct sp_tensor *sp_part_hold(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    struct sp_tensor *tensor = sp_part_stored(c, kind, layer);

    SP_NEED(tensor, "stage %d: no %s of layer %d", c->op.st->index, sp_tensor_name(kind), layer);
    sp_pool_hold(tensor);
    return tensor;
}

void sp_part_leave(struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                   struct sp_tensor *tensor)
{
    struct sp_tensor_id id = id_of(c, kind, layer);

    sp_store_put(&c->op.st->store, &id, 1, &tensor, true);
}

static struct sp_tensor **share_of(struct sp_part_op *c, enum sp_tensor_kind kind, int j)
{
    return sp_heads_tensor(&sp_part_own(c)->shares[j], kind);
}

void sp_part_hold_shares(struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    const struct sp_stored *t = sp_store_find(&c->op.st->store, &id);

    SP_NEED(t, "stage %d: no %s of layer %d", c->op.st->index, sp_tensor_name(kind), layer);
    for (int j = 0; j < t->n; j++) {
        sp_pool_hold(t->piece[j]);
        *share_of(c, kind, j) = t->piece[j];
    }
}

void sp_part_leave_shares(struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    struct sp_tensor *piece[SP_MAX_SLICES];
    int n = sp_tensor_shares(&c->op);

    for (int j = 0; j < n; j++) {
        piece[j] = *share_of(c, kind, j);
        *share_of(c, kind, j) = NULL;
    }
    sp_store_put(&c->op.st->store, &id, n, piece, true);
}

void sp_part_leave_kept(struct sp_part_op *c, enum sp_tensor_kind kind, int n,
                        struct sp_tensor *const *piece, int stage, bool travels)
{
    struct sp_tensor_id id = id_of(c, kind, c->k);
    struct sp_tensor *left[SP_MAX_SLICES];

    for (int j = 0; j < n; j++) {
        if (travels && c->op.g->cfg.evictions) {
            left[j] = sp_part_take_for(c, stage, sp_tensor_size(piece[j]) / sp_shape_elem(c->op.sh),
                                       sp_tensor_name(kind));
            sp_copy_insert(&c->op.ctx, piece[j], left[j]);
        } else {
            sp_pool_hold(piece[j]);
            left[j] = piece[j];
        }
    }
    sp_store_put(&c->op.st->store, &id, n, left, true);
}

/* ---- weights that are shipped ---------------------------------------------------------------- */

/* The name of a shipped tensor, as in the family's actions.c. */
static struct sp_tensor_id shipped(const struct sp_part_op *c, enum sp_block_kind kind,
                                   bool gradient)
{
    bool out = kind == SP_BLOCK_POST;
    enum sp_tensor_kind tensor = gradient ? (out ? SP_TENSOR_DWOUT : SP_TENSOR_GRADIENT)
                                          : (out ? SP_TENSOR_WOUT : SP_TENSOR_BLOCK);

    return (struct sp_tensor_id){.kind = (unsigned char)tensor,
                                 .block = (unsigned char)(out ? 0 : kind),
                                 .mb = gradient && c->each ? c->op.mb : -1,
                                 .at = c->k};
}

static bool is_own(const struct sp_part_op *c, enum sp_block_kind kind)
{
    return sp_part_block_stage(c, c->k + (kind == SP_BLOCK_POST)) == c->op.st->index;
}

struct sp_tensor *sp_part_weights_here(const struct sp_part_op *c, enum sp_block_kind kind)
{
    struct sp_tensor_id id = shipped(c, kind, false);

    if (is_own(c, kind))
        return sp_stage_weight(c->op.st, kind, c->k);
    if (id.kind == SP_TENSOR_BLOCK && sp_shape_shards_weights(&c->op.g->shape, c->k))
        return sp_zero_weights(c->op.st, kind, c->k);
    return sp_store_find(&c->op.st->store, &id)->piece[0];
}

/* The gradient that goes to the owner. */
static struct sp_tensor *shipped_gradient(struct sp_part_op *c, enum sp_block_kind kind,
                                          bool *fresh)
{
    struct sp_tensor_id id = shipped(c, kind, true);
    const struct sp_stored *t = sp_store_find(&c->op.st->store, &id);
    struct sp_tensor *sum;
    size_t bytes, elements;

    *fresh = !t;
    if (t)
        return t->piece[0];
    elements = sp_tensor_piece(c->op.g->cfg.plan, &c->op.g->shape, &id, 0, &bytes);
    sum = sp_pool_get(c->op.st->local, elements, bytes, "gradient");
    sp_store_put(&c->op.st->store, &id, 1, &sum, true);
    return sum;
}

struct sp_tensor *sp_part_gradient_here(struct sp_part_op *c, enum sp_block_kind kind, bool *fresh)
{
    *fresh = false;
    if (is_own(c, kind))
        return sp_stage_gradient(c->op.st, kind, c->k);
    if (kind != SP_BLOCK_POST && sp_shape_shards_gradients(&c->op.g->shape, c->k))
        return sp_zero_gradient(c->op.st, kind, c->k);
    return shipped_gradient(c, kind, fresh);
}

/* An op outside the program, for tasks on a block that the stage owns. */
static struct sp_op_ctx outside(struct sp_graph *g, struct sp_stage *st,
                                const struct sp_tensor_id *id)
{
    struct sp_op_ctx c = {.g = g, .st = st, .ctx = sp_stage_context(g, st, 'D')};

    c.ctx.layer = id->at;
    return c;
}

static void make_out(struct sp_op_ctx *c, const struct sp_tensor_id *id)
{
    bool shards = sp_shape_shards_weights(&c->g->shape, id->at);
    struct sp_block *b = sp_stage_block(c->st, SP_BLOCK_POST, id->at);
    size_t bytes, elements = sp_tensor_piece(c->g->cfg.plan, &c->g->shape, id, 0, &bytes);
    struct sp_tensor *out = sp_pool_get(c->st->local, elements, bytes, "output product");

    if (shards)
        sp_zero_gather_block(c, b->kind, id->at, b->state[SP_STATE_W]);
    sp_copy_insert(&c->ctx, b->w, out);
    if (shards)
        sp_zero_drop_block(c, b->kind, id->at);
    sp_store_put(&c->st->store, id, 1, &out, true);
}

void sp_part_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_op_ctx c = outside(g, st, id);

    if (id->kind == SP_TENSOR_WOUT && !sp_store_find(&st->store, id))
        make_out(&c, id);
    if (id->kind == SP_TENSOR_GRADIENT)
        sp_zero_add(st, &c.ctx);
}

static void add_out(struct sp_op_ctx *c, const struct sp_tensor_id *id, struct sp_tensor *part)
{
    bool shards = sp_shape_shards_gradients(&c->g->shape, id->at);
    struct sp_block *b = sp_stage_block(c->st, SP_BLOCK_POST, id->at);

    if (shards)
        sp_zero_take_block_gradient(c, b->kind, id->at);
    sp_part_add_insert(&c->ctx, part, b->g, 0);
    if (!shards)
        return;
    sp_zero_add(c->st, &c->ctx);
    sp_zero_scatter_block(c, b->kind, id->at, b->state[SP_STATE_G]);
}

void sp_part_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_op_ctx c = outside(g, st, id);
    struct sp_tensor *part = sp_store_find(&st->store, id)->piece[0];

    if (id->kind == SP_TENSOR_DWOUT)
        add_out(&c, id, part);
    else
        sp_sum_insert(&c.ctx, SP_F32, sp_stage_piece(g, st, id, 0), part, false);
}

/* ---- shards of blocks ------------------------------------------------------------------------ */

/* Blocks that an op uses. */
struct used {
    int n, layer[SP_LAYER_BLOCKS];
    enum sp_block_kind kind[SP_LAYER_BLOCKS];
};

static struct used used_by(const struct sp_part_op *c, const struct sp_op *op)
{
    const struct sp_graph *g = c->op.g;
    struct sp_op_work work[SP_MOST_WORK];
    int n = sp_op_work(g->cfg.plan, &g->shape, c->op.st->index, op, work);
    struct used used = {.n = 0};

    for (int i = 0; i < n; i++) {
        unsigned blocks =
            sp_work_blocks(g->cfg.plan, &g->shape, g->cfg.recompute, c->op.st->index, &work[i]);

        for (int k = 0; k < SP_LAYER_BLOCKS; k++)
            if (blocks >> k & 1) {
                used.layer[used.n] = work[i].first;
                used.kind[used.n++] = sp_layer_block(k);
            }
    }
    return used;
}

static const struct sp_op *op_of(const struct sp_part_op *c, int ahead)
{
    const struct sp_program *prog = &c->op.g->cfg.plan->programs[c->op.st->index];
    int i = c->op.ctx.op_index + ahead;

    return i < prog->n ? &prog->ops[i] : NULL;
}

/* The shard of a block's weights: the stage's own or a shipped one; NULL: it did not come yet. */
static struct sp_tensor *shard_of(const struct sp_part_op *c, enum sp_block_kind kind, int layer)
{
    struct sp_tensor_id id = {
        .kind = SP_TENSOR_BLOCK, .block = (unsigned char)kind, .mb = -1, .at = layer};
    struct sp_block *b = sp_stage_block(c->op.st, kind, layer);
    const struct sp_stored *t = b ? NULL : sp_store_find(&c->op.st->store, &id);

    return b ? b->state[SP_STATE_W] : t ? t->piece[0] : NULL;
}

/* The shard of a gradient: the stage's own, or one that goes to the owner. */
static struct sp_tensor *sum_of(struct sp_part_op *c, enum sp_block_kind kind, int layer)
{
    struct sp_block *b = sp_stage_block(c->op.st, kind, layer);
    struct sp_tensor *sum;
    bool fresh;

    if (b)
        return b->state[SP_STATE_G];
    sum = shipped_gradient(c, kind, &fresh);
    if (fresh)
        sp_clear_insert(&c->op.ctx, sum);
    return sum;
}

static void gather_ahead(struct sp_part_op *c)
{
    const struct sp_op *next = op_of(c, 1);
    struct used used = next ? used_by(c, next) : (struct used){.n = 0};

    for (int i = 0; i < used.n; i++)
        sp_zero_gather_ahead(&c->op, used.kind[i], used.layer[i],
                             shard_of(c, used.kind[i], used.layer[i]));
}

void sp_part_begin_shards(struct sp_part_op *c)
{
    const struct sp_shape *sh = &c->op.g->shape;
    struct used used;

    if (!c->op.st->zero)
        return;
    used = used_by(c, op_of(c, 0));
    for (int i = 0; i < used.n; i++) {
        int layer = used.layer[i];

        if (sp_shape_shards_weights(sh, layer))
            sp_zero_gather_block(&c->op, used.kind[i], layer, shard_of(c, used.kind[i], layer));
        if (c->op.ctx.pass == 'B')
            sp_zero_take_block_gradient(&c->op, used.kind[i], layer);
    }
    /* a count has each op send what it needs itself */
    if (sh->zero >= 3 && sp_sink_computes(c->op.g->cfg.sink))
        gather_ahead(c);
}

void sp_part_end_shards(struct sp_part_op *c)
{
    bool backward = c->op.ctx.pass == 'B';
    struct used used;

    if (!c->op.st->zero)
        return;
    used = used_by(c, op_of(c, 0));
    if (backward && used.n)
        sp_zero_add(c->op.st, &c->op.ctx);
    for (int i = 0; i < used.n; i++) {
        enum sp_block_kind kind = used.kind[i];
        int layer = used.layer[i];

        if (backward)
            sp_zero_scatter_block(&c->op, kind, layer, sum_of(c, kind, layer));
        if (sp_shape_shards_weights(&c->op.g->shape, layer))
            sp_zero_drop_block(&c->op, kind, layer);
    }
}
