/*
 * Slices that several stages compute, as actions, and the shares of keys and values for them
 * (key_shares.h):
 *
 *   F of a part before right slices   RUN   the owner sends each assisting stage its share of the
 * part's
 *                                           keys and values
 *   F, B of a shared slice            RUN of all parts up to attention
 *     each layer                      each part's q (B: do, o, lse too) to the others, RUN, their o
 *                                     and lse (B: dq) back, RUN
 *   B of a part before right slices   gradients of the shares, to the owner, which adds them; RUN
 */
#ifndef SP_SHARED_SLICES_H
#define SP_SHARED_SLICES_H

#include "policies/lowering/lowering.h"

/* The owner's op on its first slice after the left ones, for op's pass, chunk and micro-batch, as a
 * place in its program. As a forward it reads keys and values of left slices first; as a backward
 * it adds to their gradients last. */
int sp_owner_op(const struct sp_lowering *l, const struct sp_op *op);

/* Before and after the op at place i, if its slice comes before the right ones; for other ops they
 * do nothing. */
void sp_key_shares_before(struct sp_lowering *l, int i);
void sp_key_shares_after(struct sp_lowering *l, int i);

/* The n parts of a shared slice, from place i on, without their rows and keys. */
void sp_shared_slice_lower(struct sp_lowering *l, int i, int n);

/* A part of an op is the piece between two exchanges: up to attention, then attention, for every
 * layer. The first part of a layer begins with the rest of the layer before; one more follows the
 * last layer. */
static inline int sp_shared_slice_parts(int layers)
{
    return 2 * layers + 1;
}

#endif
