#include "graphs/families/part.h"
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

    return is_own(c, kind) ? sp_stage_weight(c->op.st, kind, c->k)
                           : sp_store_find(&c->op.st->store, &id)->piece[0];
}

struct sp_tensor *sp_part_gradient_here(struct sp_part_op *c, enum sp_block_kind kind, bool *fresh)
{
    struct sp_tensor_id id = shipped(c, kind, true);
    const struct sp_stored *t = sp_store_find(&c->op.st->store, &id);
    struct sp_tensor *sum;
    size_t bytes, elements;

    *fresh = !is_own(c, kind) && !t;
    if (!*fresh)
        return t ? t->piece[0] : sp_stage_gradient(c->op.st, kind, c->k);
    elements = sp_tensor_piece(c->op.g->cfg.plan, &c->op.g->shape, &id, 0, &bytes);
    sum = sp_pool_get(c->op.st->local, elements, bytes, "gradient");
    sp_store_put(&c->op.st->store, &id, 1, &sum, true);
    return sum;
}

void sp_part_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');
    struct sp_tensor *out;
    size_t bytes, elements;

    if (id->kind != SP_TENSOR_WOUT || sp_store_find(&st->store, id))
        return;
    elements = sp_tensor_piece(g->cfg.plan, &g->shape, id, 0, &bytes);
    out = sp_pool_get(st->local, elements, bytes, "output product");
    ctx.layer = id->at;
    sp_copy_insert(&ctx, sp_stage_weight(st, SP_BLOCK_POST, id->at), out);
    sp_store_put(&st->store, id, 1, &out, true);
}

void sp_part_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');
    struct sp_tensor *part = sp_store_find(&st->store, id)->piece[0];

    ctx.layer = id->at;
    if (id->kind == SP_TENSOR_DWOUT)
        sp_part_add_insert(&ctx, part, sp_stage_gradient(st, SP_BLOCK_POST, id->at), 0);
    else
        sp_sum_insert(&ctx, SP_F32, sp_stage_gradient(st, (enum sp_block_kind)id->block, id->at),
                      part, false);
}
