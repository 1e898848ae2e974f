/* Blocks of parameters that several stages hold: their gradients are summed in every step. */
#ifndef SP_REPLICAS_H
#define SP_REPLICAS_H

#include "policies/lowering/lowering.h"

/*
 * A REDUCE for each stage of a block that more than one holds (ownership.h: sp_block_holders), block by
 * block in the order of the model, whatever the order in which a stage holds them: if processes took them
 * up in orders of their own, each could wait for a buffer that the other's exchange frees. Nothing where
 * the model is unknown.
 */
void sp_replicas_lower(struct sp_lowering *l);

/*
 * Embedding and head on all stages, summed without a collective in one order of additions whatever the
 * processes: each stage adds its gradient to what the stage before passed on, as soon as its own is whole,
 * after the op at `index` of its program; then the last one's sum goes around once more.
 */
void sp_replicated_lower_add(struct sp_lowering *l, int stage, int index);
void sp_replicated_lower_total(struct sp_lowering *l);

#endif
