#include "policies/families/replicas.h"
#include "policies/families/ownership.h"

static void reduce(struct sp_lowering *l, enum sp_block_kind kind, int layer)
{
    struct sp_tensor_id t = {
        .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)kind, .mb = -1, .at = layer};
    int stages[SP_MAX_HOLDERS];
    int n = sp_block_holders(l->plan, &l->shape->held, kind, layer, stages);

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

/* ---- on all stages -------------------------------------------------------------------------- */

/* Calls fn for the gradient of every block outside the layers that the model has. */
static void each_end(struct sp_lowering *l, int stage, int index,
                     void (*fn)(struct sp_lowering *l, int stage, struct sp_tensor_id t, int index))
{
    for (int kind = 0; l->shape && kind < SP_BLOCK_KINDS; kind++)
        if (!sp_block_is_of_layer((enum sp_block_kind)kind) &&
            sp_block_elements(&l->shape->held, (enum sp_block_kind)kind))
            fn(l, stage,
               (struct sp_tensor_id){
                   .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)kind, .mb = -1, .at = -1},
               index);
}

static void add_partial(struct sp_lowering *l, int stage, struct sp_tensor_id t, int index)
{
    sp_lower_recv(l, stage - 1, stage, t, index);
    sp_lower_add(l, stage, t);
    sp_lower_free(l, stage, t);
}

/* To the next stage; what the last one sends to the first is the sum of all. */
static void send_on(struct sp_lowering *l, int stage, struct sp_tensor_id t, int index)
{
    sp_lower_send(l, stage, (stage + 1) % l->plan->layout.stages, t, index);
}

void sp_replicated_lower_add(struct sp_lowering *l, int stage, int index)
{
    if (!l->shape || l->plan->layout.stages == 1)
        return;
    if (stage > 0)
        each_end(l, stage, -1, add_partial);
    each_end(l, stage, index, send_on);
}

static void receive_total(struct sp_lowering *l, int stage, struct sp_tensor_id t, int index)
{
    int stages = l->plan->layout.stages;

    sp_lower_recv_home(l, (stage + stages - 1) % stages, stage, t);
    if (stage < stages - 2)
        send_on(l, stage, t, index);
}

void sp_replicated_lower_total(struct sp_lowering *l)
{
    for (int stage = 0; stage + 1 < l->plan->layout.stages; stage++)
        each_end(l, stage, -1, receive_total);
}
