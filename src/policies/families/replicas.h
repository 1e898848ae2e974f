/* Blocks of parameters that several stages hold: their gradients are summed in every step. */
#ifndef SP_REPLICAS_H
#define SP_REPLICAS_H

#include "policies/lowering/lowering.h"

/*
 * A REDUCE for each stage of a block that more than one holds (ownership.h: sp_block_owners), block by
 * block in the order of the model, whatever the order in which a stage holds them: if processes took them
 * up in orders of their own, each could wait for a buffer that the other's exchange frees. Nothing where
 * the model is unknown.
 */
void sp_replicas_lower(struct sp_lowering *l);

#endif
