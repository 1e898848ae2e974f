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
