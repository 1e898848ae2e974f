#include "graphs/families/part.h"

/* Weights are the same for all micro-batches. */
static struct sp_tensor_id id_of(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .mb = kind == SP_TENSOR_WQKV ? -1 : c->mb, .at = layer};
}

starpu_data_handle_t sp_part_stored(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    return t ? t->piece[0] : NULL;
}

void sp_part_leave(struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                   starpu_data_handle_t tensor)
{
    struct sp_tensor_id id = id_of(c, kind, layer);

    sp_store_put(&c->st->store, &id, 1, &tensor, true);
}

void sp_part_hold_pieces(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                         starpu_data_handle_t *piece)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    STARPU_ASSERT_MSG(t, "starpipe: stage %d: no %s of layer %d", c->st->index,
                      sp_tensor_name(kind), layer);
    for (int j = 0; j < t->n; j++)
        piece[j] = sp_part_hold(t->piece[j]);
}

void sp_part_leave_pieces(struct sp_part_op *c, enum sp_tensor_kind kind, int layer, int n,
                          const starpu_data_handle_t *piece)
{
    struct sp_tensor_id id = id_of(c, kind, layer);

    sp_store_put(&c->st->store, &id, n, piece, true);
}

struct sp_op_ctx sp_part_op_of(const struct sp_part_op *c, struct sp_layer_flight *t,
                               struct sp_chunk_flight *one)
{
    one->layers = t;
    return (struct sp_op_ctx){
        .g = c->g, .st = c->st, .sh = c->sh, .ctx = c->ctx, .fl = one, .mb = c->mb, .count = 1};
}

starpu_data_handle_t sp_part_weights_here(const struct sp_part_op *c)
{
    starpu_data_handle_t w = sp_part_weight(c, SP_BLOCK_QKV, c->k);

    return w ? w : sp_part_stored(c, SP_TENSOR_WQKV, c->k);
}

void sp_part_hold_inputs(struct sp_part_op *c)
{
    struct sp_part_flight *t = sp_part_flight_of(c, c->k);
    starpu_data_handle_t held[SP_MAX_SLICES + 1];
    int n = sp_shape_shares(c->sh);

    sp_part_hold_pieces(c, SP_TENSOR_O, c->k - 1, held);
    if (c->sh->tensor > 1)
        for (int j = 0; j < n; j++)
            t->half.shares[j].o = held[j];
    else
        t->block.o = held[0];
    held[n] = t->block.residual = sp_part_hold(sp_part_stored(c, SP_TENSOR_X, c->k - 1));
    c->ctx.layer = c->k - 1;
    sp_hold_insert(&c->ctx, c->sh, n + 1, held, c->stash);
}
