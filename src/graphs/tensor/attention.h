/*
 * Attention of a member's heads when a stage's members split parameters (parts.h). Queries, keys
 * and values come in shares of the tokens; each share attends to those before it, as slices do.
 * With context parallelism, the shares are joined first; attention is then that of context/, as if
 * the model had only this member's heads.
 */
#ifndef SP_TENSOR_ATTENTION_H
#define SP_TENSOR_ATTENTION_H

#include "graphs/layer/attention.h"
#include "graphs/tensor/shares.h"

/* q and, with `keys`, kv of all shares to where attention reads them; then t->shares does not have them. Nothing
 * happens where it reads them there. */
void sp_tensor_attention_take(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys);

/* Computes o of all shares, taken from `pool`; lse and what the backward of attention reads again
 * stay among the layer's activations. */
void sp_tensor_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool);

/* o of all shares once more, where what the forward left is not these. */
void sp_tensor_attention_outputs(struct sp_op_ctx *c, struct sp_layer_activations *t);

/* Computes dq and dkv of all shares, taken from `pool`, from their d_o, which it drops. Ends the
 * life of `released` bytes. */
void sp_tensor_attention_backward(struct sp_op_ctx *c, int i, struct sp_pool *pool,
                                  int64_t released);

/* Drops what attention read and wrote, as far as that is said; of o not the shares' where attention reads others. */
void sp_tensor_attention_drop(struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                              bool o);

#endif
