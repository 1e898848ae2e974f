/*
 * Attention of the heads that a member has where a stage's members share parameters (parts.h). Its queries, keys and
 * values come in shares of the tokens, each of which attends to those before it, as slices do. Where other members have
 * other tokens, the shares are joined first, and attention is that of context parallelism (context/), as if these were
 * all heads that there are.
 */
#ifndef SP_TENSOR_ATTENTION_H
#define SP_TENSOR_ATTENTION_H

#include "graphs/layer/attention.h"
#include "graphs/tensor/shares.h"

/* q and, with `keys`, kv of all shares to where attention reads them; then t->shares does not have them. Nothing
 * happens where it reads them there. */
void sp_tensor_attention_take(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys);

/* o of all shares, from `pool`; lse, and what attention reads again in its backward, stay in the flight. */
void sp_tensor_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool);

/* o of all shares once more, where what the forward left is not these. */
void sp_tensor_attention_outputs(struct sp_op_ctx *c, struct sp_layer_activations *t);

/* dq and dkv of all shares, from `pool`, of their d_o, which goes. Ends the life of `released` bytes. */
void sp_tensor_attention_backward(struct sp_op_ctx *c, int i, struct sp_pool *pool,
                                  int64_t released);

/* Drops what attention read and wrote, as far as that is said; of o not the shares' where attention reads others. */
void sp_tensor_attention_drop(struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                              bool o);

#endif
