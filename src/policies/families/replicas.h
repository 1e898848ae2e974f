/* Blocks of parameters that several stages hold: every step sums their gradients. */
#ifndef SP_REPLICAS_H
#define SP_REPLICAS_H

#include "policies/lowering/lowering.h"

/*
 * A REDUCE on each stage that holds a block, for every block that more than one stage holds
 * (ownership.h: sp_block_owners). The blocks come in the order of the model, in whatever order a
 * stage holds them: if processes took them in different orders, each could wait for a buffer that
 * the other's exchange frees. Nothing if the model is unknown.
 */
void sp_replicas_lower(struct sp_lowering *l);

#endif
