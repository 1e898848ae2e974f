/* Traffic between the devices of a stage: for attention, if they share the tokens of sequences
 * (graphs/context/); at every product, if they share parameters (graphs/tensor/). */
#ifndef SP_EXCHANGES_H
#define SP_EXCHANGES_H

#include "model/stash.h"
#include "policies/plan.h"

/* Bytes that one device, the first, sends to the others in an op: rows of tokens and shares of
 * sums; heads of q, k, v and the output, or keys and values around a ring; their gradients; and
 * again what the backward recomputes. `every` is the K of --recompute every=K. */
int64_t sp_exchange_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int every, int stage,
                          const struct sp_op *op);

#endif
