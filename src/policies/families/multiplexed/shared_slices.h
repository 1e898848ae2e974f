/*
 * Slices that several stages compute as actions, and the shares of keys and values for them (key_shares.h):
 *
 *   F of a part before right slices   RUN   the owner sends each helper its share of the part's keys and values
 *   F, B of a shared slice            RUN of all parts up to attention
 *     each layer                      each part's q (B: do, o, lse too) to the others, RUN, their o and lse (B: dq) back,
 *                                     RUN
 *   B of a part before right slices   gradients of the shares, to the owner, who adds them; then RUN
 */
#ifndef SP_SHARED_SLICES_H
#define SP_SHARED_SLICES_H

#include "policies/lowering/lowering.h"

/* The place in its program of the first op of a pass that the owner has after his left slices, of op's chunk and micro-
 * batch: it reads keys and values of these first, and adds to their gradients last. */
int sp_owner_op(const struct sp_lowering *l, const struct sp_op *op);

/* Before and after the op at place i, if it is of a slice before the right ones; else nothing. */
void sp_key_shares_before(struct sp_lowering *l, int i);
void sp_key_shares_after(struct sp_lowering *l, int i);

/* The n parts of a shared slice, from place i on, but for rows and keys. */
void sp_shared_slice_lower(struct sp_lowering *l, int i, int n);

/* A leg is what of an op comes between two exchanges: up to attention, and attention, of every layer; the first of a
 * layer begins with the rest of the one before, and after the last layer comes one more. */
static inline int sp_shared_slice_parts(int layers)
{
    return 2 * layers + 1;
}

#endif
