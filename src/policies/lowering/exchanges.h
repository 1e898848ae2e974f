/* What the devices of a stage exchange: for attention, where they share the tokens of sequences (graphs/context/), and
 * beside every product, where they share parameters (graphs/tensor/). */
#ifndef SP_EXCHANGES_H
#define SP_EXCHANGES_H

#include "model/stash.h"
#include "policies/plan.h"

/* Bytes that one of them, the first, sends to the others in an op: rows of tokens and shares of sums; heads of q, k, v
 * and the output, or keys and values around a ring; their gradients; and again what the backward computes again,
 * `every` as --recompute has it. */
int64_t sp_exchange_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int every, int stage,
                          const struct sp_op *op);

#endif
