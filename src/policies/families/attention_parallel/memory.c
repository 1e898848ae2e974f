#include "policies/families/attention_parallel/attention_parallel.h"

bool sp_ships_each_time(const struct sp_plan *plan)
{
    return sp_ship_wish(&plan->layout) == SP_WISH_PUBLISHED;
}

enum sp_shipment sp_shipment(const struct sp_plan *plan, const struct sp_shape *sh)
{
    uint64_t T = (uint64_t)sh->rows, h = (uint64_t)sh->model.hidden;
    uint64_t width = (uint64_t)(sh->q_width + sh->kv_width);
    /* micro-batches that share a copy of the weights: a layer has m attentions on p stages */
    uint64_t sharing = (uint64_t)(plan->layout.micro_batches / plan->layout.stages);
    uint64_t weights = sp_block_elements(&sh->held, SP_BLOCK_QKV) / (sharing ? sharing : 1);

    switch (sp_ship_wish(&plan->layout)) {
    case SP_WISH_ATTENTION:
        return SP_SHIP_ATTENTION;
    case SP_WISH_ACTIVATIONS:
        return SP_SHIP_ACTIVATIONS;
    case SP_WISH_WEIGHTS:
    case SP_WISH_PUBLISHED:
        return SP_SHIP_QKV;
    default:
        return T * h + weights < T * width ? SP_SHIP_QKV : SP_SHIP_ACTIVATIONS;
    }
}

/* Attention keeps x if it has all weights, n1 if it has those of the QKV product, otherwise q, k
 * and v. */
static void attention_elements(const struct sp_plan *plan, const struct sp_shape *sh,
                               enum sp_recompute recompute, int64_t elements[SP_STASH_TENSORS])
{
    enum sp_shipment ships = sp_shipment(plan, sh);
    bool kept = sp_stash_keeps(recompute, SP_STASH_PRE);

    for (enum sp_stash_tensor t = SP_STASH_O;
         sp_stash_keeps(recompute, SP_STASH_O) && t <= SP_STASH_LSE; t++)
        elements[t] = (int64_t)sp_stash_elements(sh, SP_RECOMPUTE_NONE, t);
    if (sp_shape_exchanges(sh) &&
        ships != SP_SHIP_ATTENTION) /* only the copy by heads; the block has the other */
        elements[SP_STASH_O] /= 2;
    if (kept || ships == SP_SHIP_ACTIVATIONS)
        for (enum sp_stash_tensor t = SP_STASH_Q; t <= SP_STASH_KV; t++)
            elements[t] = (int64_t)sp_stash_elements(sh, SP_RECOMPUTE_NONE, t);
    if (ships == SP_SHIP_ATTENTION) {
        elements[SP_STASH_X] = (int64_t)sh->rows * sh->model.hidden;
        if (kept)
            elements[SP_STASH_PRE] =
                (int64_t)sp_shape_pre_saved(sh, recompute == SP_RECOMPUTE_NONE);
    } else if (ships == SP_SHIP_QKV) {
        elements[SP_STASH_PRE] = (int64_t)sh->rows * sh->model.hidden;
    }
}

static void block_elements(const struct sp_plan *plan, const struct sp_shape *sh,
                           enum sp_recompute recompute, int stage, const struct sp_op *op,
                           int64_t elements[SP_STASH_TENSORS])
{
    bool kept = sp_stash_keeps(recompute, SP_STASH_PRE), last = op->chunk == plan->layout.layers;
    bool keep_outputs = recompute == SP_RECOMPUTE_NONE;
    enum sp_shipment ships = sp_shipment(plan, sh);
    int64_t T = sh->rows, x = T * sh->model.hidden;
    bool pre = !last && ships != SP_SHIP_ATTENTION;

    if (op->chunk > 0 && ships != SP_SHIP_ATTENTION &&
        !sp_shares_output(plan, sh, recompute, stage, op))
        elements[SP_STASH_O] = T * sh->q_width;
    if (op->chunk > 0 && kept)
        elements[SP_STASH_POST] = (int64_t)sp_shape_post_saved(sh, keep_outputs);
    if (kept ? pre || last : op->chunk > 0)
        elements[SP_STASH_X] = x;
    if (kept && pre)
        elements[SP_STASH_PRE] =
            (int64_t)sp_shape_pre_saved(sh, keep_outputs && ships != SP_SHIP_QKV);
}

int sp_parts_kind(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    return op->part == SP_BLOCK && op->chunk > 0 &&
           sp_attention_stage(lay, op->mb, op->chunk - 1) == stage;
}

bool sp_shares_output(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int stage, const struct sp_op *op)
{
    int layer = op->part == SP_ATTN ? op->chunk : op->chunk - 1;
    int other = op->part == SP_ATTN ? sp_block_stage(&plan->layout, layer + 1)
                                    : sp_attention_stage(&plan->layout, op->mb, layer);

    return layer >= 0 && other == stage && sp_stash_keeps(recompute, SP_STASH_O) &&
           sp_shipment(plan, sh) != SP_SHIP_ATTENTION && !sp_shape_exchanges(sh) && !sh->joins;
}

void sp_parts_stash_tensors(const struct sp_plan *plan, const struct sp_shape *sh,
                            enum sp_recompute recompute, int stage, const struct sp_op *op,
                            int64_t elements[SP_STASH_TENSORS])
{
    struct sp_shape slice;
    int first, len;

    for (int t = 0; t < SP_STASH_TENSORS; t++)
        elements[t] = 0;
    sp_plan_op_tokens(plan, sh->seq, op, &first, &len);
    sp_shape_slice(sh, first, len, &slice);
    if (op->part == SP_ATTN)
        attention_elements(plan, &slice, recompute, elements);
    else
        block_elements(plan, &slice, recompute, stage, op, elements);
}

int64_t sp_parts_stash(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int stage, const struct sp_op *op,
                       int64_t *head)
{
    bool last = op->part == SP_BLOCK && op->chunk == plan->layout.layers;
    int64_t elements[SP_STASH_TENSORS], sum = 0, elem = (int64_t)sp_shape_elem(sh);

    sp_parts_stash_tensors(plan, sh, recompute, stage, op, elements);
    for (int t = 0; t < SP_STASH_TENSORS; t++)
        sum += elements[t];
    *head = last && sp_stash_keeps(recompute, SP_STASH_PRE) ? elem * elements[SP_STASH_X] : 0;
    return elem * sum;
}
