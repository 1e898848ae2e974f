/*
 * Context parallelism by heads (Ulysses: Jacobs et al. 2023, "DeepSpeed Ulysses", section 3): the members of a stage
 * share the tokens of every sequence, so all of a layer but attention is each one's own. Before attention they
 * exchange: of q, k and v each gets its heads of all tokens; after it back.
 *
 *   spread   (T,width) of this member's tokens, all heads   ->   its heads of each member's tokens
 *   collect  the way back
 *
 * Of t members with T tokens in all, h query columns and r query heads a key and value head, each sends in a forward
 * of a layer (2 + 2/r) (t-1)/t^2 T h elements, as many in a backward: q and o, k and v, and their gradients.
 */
#ifndef SP_CONTEXT_HEADS_H
#define SP_CONTEXT_HEADS_H

#include "graphs/op.h"
#include "policies/lowering/tensor.h"

/* `kind`: SP_TENSOR_Q, KV, O or a gradient of those. parts[members] are taken from the stage's pool; `whole` stays. */
void sp_context_spread(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *whole,
                       struct sp_tensor **parts);

/* Writes `whole`; the parts stay, but those of keys and values become sums. */
void sp_context_collect(struct sp_op_ctx *c, enum sp_tensor_kind kind,
                        struct sp_tensor *const *parts, struct sp_tensor *whole);

#endif
