/*
 * Sharded programs as actions. A unit of weights is gathered one unit ahead of the ops that use it
 * (shards.h). Its gradient is scattered after the last of a run of backwards that add to it.
 * Embedding and head are gathered before the first op and scattered at the end of the step: they
 * are small compared with the layers, or every micro-batch uses them twice.
 */
#include "policies/families/families.h"
#include "policies/families/ownership.h"
#include "policies/families/sharded/shards.h"
#include "policies/lowering/lowering.h"
#include <limits.h>

/* Bytes that a stage sends for a unit: in a gather its own shard, in a scatter the shards of
 * others; all have one size. */
static int64_t bytes_of(const struct sp_lowering *l, const struct sp_tensor_id *t)
{
    const struct sp_shape *sh = l->shape;
    int first, count;
    int64_t sum = 0;

    if (!sh)
        return 0;
    sp_chunk_layers(l->plan, sh->model.layers, 0, t->at < 0 ? 0 : t->at, &first, &count);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        bool of_layer = sp_block_is_of_layer((enum sp_block_kind)kind);

        if (of_layer == (t->at >= 0) && sp_block_is_gathered(l->plan, (enum sp_block_kind)kind))
            sum += (of_layer ? count : 1) *
                   (int64_t)sp_block_held(l->plan, &sh->held, (enum sp_block_kind)kind);
    }
    return sum * (l->plan->layout.stages - 1) *
           (t->kind == SP_TENSOR_D ? (int64_t)sizeof(float) : (int64_t)sp_shape_elem(sh));
}

void sp_shards_lower(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                     int chunk)
{
    struct sp_tensor_id t = {
        .kind = kind == SP_ACTION_GATHER ? SP_TENSOR_W : SP_TENSOR_D, .mb = -1, .at = chunk};

    sp_lower_collective(l, kind, stage, index, t, l->plan->layout.stages, l->all, bytes_of(l, &t));
}

void sp_sharded_lower(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, index = l->order[i].index;
    const struct sp_program *prog = &l->plan->programs[stage];
    int next = sp_shards_prefetch(prog, index);
    bool alone = l->plan->layout.stages == 1;

    if (!alone && index == 0) {
        sp_shards_lower(l, SP_ACTION_GATHER, stage, 0, SP_SHARDS_ENDS);
        sp_shards_lower(l, SP_ACTION_GATHER, stage, 0, prog->ops[0].chunk);
    }
    if (!alone && next >= 0)
        sp_shards_lower(l, SP_ACTION_GATHER, stage, next, prog->ops[next].chunk);
    sp_lower_run(l, stage, index);
    if (!alone && prog->ops[index].pass == SP_B && sp_shards_add_last(prog, index))
        sp_shards_lower(l, SP_ACTION_SCATTER, stage, index, prog->ops[index].chunk);
}

void sp_sharded_lower_end(struct sp_lowering *l)
{
    for (int r = 0; r < l->plan->layout.stages && l->plan->layout.stages > 1; r++)
        sp_shards_lower(l, SP_ACTION_SCATTER, r, INT_MAX, SP_SHARDS_ENDS);
}
