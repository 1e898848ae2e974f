/*
 * Context parallelism by heads (Ulysses: Jacobs et al. 2023, "DeepSpeed Ulysses", section 3): the
 * members of a stage split the tokens of every sequence, so each computes a layer for its own
 * tokens, except attention. Before attention the members exchange q, k and v: each gives away
 * tokens and gets all tokens of its own heads. After attention they exchange back.
 *
 *   spread   (T,width) of this member's tokens, all heads   ->   its heads of each member's tokens
 *   collect  the way back
 *
 * With t members, T tokens in all, h query columns and r query heads per key and value head, a
 * member sends (2 + 2/r) (t-1)/t^2 T h elements in the forward of a layer: q and o, k and v. The
 * backward sends as many: their gradients.
 */
#ifndef SP_CONTEXT_HEADS_H
#define SP_CONTEXT_HEADS_H

#include "graphs/op.h"
#include "policies/lowering/tensor.h"

/* `kind`: SP_TENSOR_Q, KV, O or a gradient of those. Takes parts[members] from the stage's pool;
 * `whole` stays. */
void sp_context_spread(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *whole,
                       struct sp_tensor **parts);

/* Writes `whole`. The parts stay; parts of key and value gradients are overwritten with their
 * sums. */
void sp_context_collect(struct sp_op_ctx *c, enum sp_tensor_kind kind,
                        struct sp_tensor *const *parts, struct sp_tensor *whole);

#endif
