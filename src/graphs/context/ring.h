/*
 * Context parallelism around a ring (Liu, Zaharia, Abbeel 2023, "Ring Attention with Blockwise Transformers",
 * section 3): the members of a stage share the tokens of every sequence; queries stay, keys and values pass all of
 * them, and what attention over each member's gives is merged. In the backward keys and values pass again, with
 * their gradients, which go one further and are home.
 *
 * Each member has two parts of a sequence, the k-th from its beginning and from its end (sp_shape_member), and so
 * sees half of what passes in every turn but the first.
 *
 * Of t members with T tokens in all, h hidden and r query heads a key and value head, each sends in a layer 2
 * (t-1)/t T h/r elements forward, as many and 2 T h/r backward.
 */
#ifndef SP_CONTEXT_RING_H
#define SP_CONTEXT_RING_H

#include "graphs/op.h"

/* Attention of layer i of the slice: o and lse from q, and from the keys and values of the slices up to it. */
void sp_context_ring_forward(struct sp_op_ctx *c, int i, int64_t stashed);

/* dq; and dkv of the slices up to it, += or, `first`, =. Ends the life of `released` bytes. */
void sp_context_ring_backward(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, bool first,
                              int64_t released);

#endif
