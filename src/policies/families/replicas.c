#include "policies/families/replicas.h"
#include "policies/families/ownership.h"

static void reduce(struct sp_lowering *l, enum sp_block_kind kind, int layer)
{
    struct sp_tensor_id t = {
        .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)kind, .mb = -1, .at = layer};
    int stages[SP_MAX_OWNERS];
    int n = sp_block_owners(l->plan, &l->shape->held, kind, layer, stages);

    for (int k = 0; n > 1 && k < n; k++)
        sp_lower_collective(l, SP_ACTION_REDUCE, stages[k], -1, t, n, stages,
                            sp_tensor_bytes(l->plan, l->shape, &t));
}

void sp_replicas_lower(struct sp_lowering *l)
{
    const struct sp_model *m = l->shape ? &l->shape->held : NULL;

    for (int layer = -1; m && layer < m->layers; layer++)
        for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
            enum sp_block_kind k = (enum sp_block_kind)kind;

            if (sp_block_is_of_layer(k) == (layer >= 0) && sp_block_elements(m, k))
                reduce(l, k, layer);
        }
}
