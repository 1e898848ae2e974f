/* What the devices of a stage that share the tokens of sequences exchange for attention (graphs/context/). */
#ifndef SP_EXCHANGES_H
#define SP_EXCHANGES_H

#include "model/stash.h"
#include "policies/plan.h"

/* Bytes that one of them sends to the others in an op: heads of q, k, v and the output, or keys and values
 * around a ring; their gradients; and again what the backward computes again. */
int64_t sp_exchange_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int stage, const struct sp_op *op);

#endif
