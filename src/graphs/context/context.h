/* Attention of stages whose members split the tokens of every sequence. */
#ifndef SP_CONTEXT_H
#define SP_CONTEXT_H

#include "graphs/op.h"
#include "policies/lowering/tensor.h"

/*
 * The members of a stage are groups of u neighbours that divide the heads, and a ring of such groups
 * ("unified": Fang and Zhao 2024, "A Unified Sequence Parallelism Approach for Long Context Generative
 * AI"). One group or groups of one are the two methods that it joins.
 *
 * Context parallelism by heads (Ulysses: Jacobs et al. 2023, "DeepSpeed Ulysses", section 3): the
 * members of a stage split the tokens of every sequence, so each computes a layer for its own
 * tokens, except attention. Before attention the members exchange q, k and v: each gives away
 * tokens and gets all tokens of its own heads. After attention they exchange back.
 *
 *   spread   (T,width) of this member's tokens, all heads   ->   its heads of each member's tokens
 *   collect  the way back
 *
 * With t members, T tokens in all, h query columns and r query heads per key and value head, a
 * member sends (2 + 2/r) (u-1)/(u t) T h elements in the forward of a layer: q and o, k and v. The
 * backward sends as many: their gradients.
 */

/* `kind`: SP_TENSOR_Q, KV, O or a gradient of those. Takes parts[u] from the stage's pool, or parts[1]
 * of all members' tokens if they have these in turns; `whole` stays. */
void sp_context_spread(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *whole,
                       struct sp_tensor **parts);

/* Writes `whole`. The parts stay; parts of key and value gradients are overwritten with their
 * sums. */
void sp_context_collect(struct sp_op_ctx *c, enum sp_tensor_kind kind,
                        struct sp_tensor *const *parts, struct sp_tensor *whole);

/*
 * Context parallelism around a ring (Liu, Zaharia, Abbeel 2023, "Ring Attention with Blockwise
 * Transformers", section 3): the members of a stage split the tokens of every sequence. Queries
 * stay; keys and values pass all members, and each merges what attention over the passing ones
 * gives. In the backward keys and values pass again together with their gradients. The gradients go
 * one step further, which brings them back to their owner.
 *
 * Each group has two parts of a sequence, the k-th from its beginning and from its end
 * (sp_shape_member), and so attends to half of what passes in every turn but the first. A member
 * passes on what its neighbours gave it, its heads of the group's tokens, to the same place of the
 * next group.
 *
 * With t members, T tokens in all, h hidden columns and r query heads per key and value head, a
 * member sends 2 (t-u)/(t u) T h/r elements in the forward of a layer, and as many and 2/u T h/r in
 * the backward.
 */

/* Computes attention of layer i of the slice: o and lse from q and the keys and values of this
 * slice and those before it. */
void sp_context_ring_forward(struct sp_op_ctx *c, int i, int64_t stashed);

/* Computes dq from d_o, and dkv of this slice and those before it: dkv += or, if `first`, dkv =. Ends the
 * life of `released` bytes. */
void sp_context_ring_backward(struct sp_op_ctx *c, int i, bool first, int64_t released);

#endif
