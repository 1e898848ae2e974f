/*
 * Weight-ring programs as actions: how weights and gradients of chunks travel, around the ring or down the
 * line, and the sums of embedding and head, which every worker has. Around the ring these would cost 2(G+1)
 * times their size a worker and step; summed, 2.
 */
#include "policies/families/families.h"
#include "policies/families/replicas.h"
#include "policies/families/weight_ring/actions.h"

static bool is_line(const struct sp_lowering *l)
{
    return sp_lowering_ring(l)->layout == SP_RING_LINE;
}

/* Whether an op is the last of its worker that adds to the gradients of embedding and head. */
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

/* Some workers have no micro-batch in the last round: they are done before the one that they have sums from. */
static bool is_partial(const struct sp_lowering *l)
{
    return l->plan->layout.micro_batches % l->plan->layout.stages != 0;
}

int sp_weight_ring_lower_begin(struct sp_lowering *l)
{
    return is_line(l) ? 0 : sp_ring_around_lower_begin(l);
}

void sp_weight_ring_lower(struct sp_lowering *l, int i)
{
    if (is_line(l))
        sp_ring_line_lower(l, i);
    else
        sp_ring_around_lower(l, i);
    if (!is_partial(l) && adds_last_to_ends(l->plan, l->order[i].stage, l->order[i].index))
        sp_replicated_lower_add(l, l->order[i].stage, l->order[i].index);
}

void sp_weight_ring_lower_end(struct sp_lowering *l)
{
    if (!is_line(l))
        sp_ring_around_lower_end(l);
    for (int worker = 0; is_partial(l) && worker < l->plan->layout.stages; worker++)
        sp_replicated_lower_add(l, worker, -1);
    sp_replicated_lower_total(l);
}
