/*
 * Shared by the two flows of weights in a weight ring: around the ring (actions_around.c) and down
 * the line of workers (actions_line.c).
 */
#ifndef SP_RING_ACTIONS_H
#define SP_RING_ACTIONS_H

#include "policies/families/activations.h"
#include "policies/families/weight_ring/ring.h"
#include "policies/lowering/lowering.h"

static inline const struct sp_ring *sp_lowering_ring(const struct sp_lowering *l)
{
    return sp_ring_of(&l->plan->layout);
}

/* True if an op computes with weights of its chunk; and true if it adds to their gradients. */
static inline bool sp_ring_wants_weights(const struct sp_op *op)
{
    return op->part == SP_CHUNK && op->pass != SP_W;
}

static inline bool sp_ring_adds(const struct sp_plan *plan, int worker, const struct sp_op *op)
{
    return op->part == SP_CHUNK && op->pass != SP_F && sp_op_releases(plan, worker, op);
}

int sp_ring_around_lower_begin(struct sp_lowering *l);
void sp_ring_around_lower(struct sp_lowering *l, int i);
void sp_ring_around_lower_end(struct sp_lowering *l);

void sp_ring_line_lower(struct sp_lowering *l, int i);

#endif
