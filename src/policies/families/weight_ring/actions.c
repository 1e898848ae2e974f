/*
 * Weight-ring programs as actions. Weights and gradients of chunks travel around the ring or down
 * the line. Every worker owns a part of embedding and head. They are gathered before its first op,
 * and their gradients scattered after the last op that adds to them. That costs twice their size
 * per worker and step, in messages between all workers at once; around the ring it would be 2(G+1)
 * times.
 */
#include "policies/families/families.h"
#include "policies/families/sharded/shards.h"
#include "policies/families/weight_ring/actions.h"

static bool is_line(const struct sp_lowering *l)
{
    return sp_lowering_ring(l)->layout == SP_RING_LINE;
}

/* True if an op is the last of its worker that adds to the gradients of embedding and head. */
static bool adds_last_to_ends(const struct sp_plan *plan, int worker, int index)
{
    const struct sp_program *prog = &plan->programs[worker];

    for (int k = prog->n - 1; k >= 0; k--) {
        const struct sp_op *op = &prog->ops[k];

        if (op->part == SP_HEAD || (op->chunk == 0 && sp_ring_adds(plan, worker, op)))
            return k == index;
    }
    return false;
}

int sp_weight_ring_lower_begin(struct sp_lowering *l)
{
    return is_line(l) ? 0 : sp_ring_around_lower_begin(l);
}

void sp_weight_ring_lower(struct sp_lowering *l, int i)
{
    int worker = l->order[i].stage, index = l->order[i].index;
    bool alone = l->plan->layout.stages == 1;

    if (index == 0 && !alone)
        sp_shards_lower(l, SP_ACTION_GATHER, worker, 0, SP_SHARDS_ENDS);
    if (is_line(l))
        sp_ring_line_lower(l, i);
    else
        sp_ring_around_lower(l, i);
    if (adds_last_to_ends(l->plan, worker, index) && !alone)
        sp_shards_lower(l, SP_ACTION_SCATTER, worker, index, SP_SHARDS_ENDS);
}

void sp_weight_ring_lower_end(struct sp_lowering *l)
{
    if (!is_line(l))
        sp_ring_around_lower_end(l);
}
