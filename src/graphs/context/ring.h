/*
 * Context parallelism around a ring (Liu, Zaharia, Abbeel 2023, "Ring Attention with Blockwise
 * Transformers", section 3): the members of a stage split the tokens of every sequence. Queries
 * stay; keys and values pass all members, and each merges what attention over the passing ones
 * gives. In the backward keys and values pass again together with their gradients. The gradients go
 * one step further, which brings them back to their owner.
 *
 * Each member has two parts of a sequence, the k-th from its beginning and from its end
 * (sp_shape_member), and so attends to half of what passes in every turn but the first.
 *
 * With t members, T tokens in all, h hidden columns and r query heads per key and value head, a
 * member sends 2 (t-1)/t T h/r elements in the forward of a layer, and as many and 2 T h/r in the
 * backward.
 */
#ifndef SP_CONTEXT_RING_H
#define SP_CONTEXT_RING_H

#include "graphs/op.h"

/* Computes attention of layer i of the slice: o and lse from q and the keys and values of this
 * slice and those before it. */
void sp_context_ring_forward(struct sp_op_ctx *c, int i, int64_t stashed);

/* Computes dq, and dkv of this slice and those before it: dkv += or, if `first`, dkv =. Ends the
 * life of `released` bytes. */
void sp_context_ring_backward(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, bool first,
                              int64_t released);

#endif
