/*
 * Attention of a member's heads when a stage's members split parameters (shares.h). Queries, keys
 * and values come in shares of the tokens; each share attends to those before it, as slices do.
 * With context parallelism, the shares are joined first; attention is then that of context/, as if
 * the model had only this member's heads.
 */
#ifndef SP_TENSOR_ATTENTION_H
#define SP_TENSOR_ATTENTION_H

#include "graphs/layer/attention.h"
#include "graphs/tensor/shares.h"

/* Moves q and, with `keys`, kv of all shares into the form that attention reads; t->shares then no
 * longer has them unless it is this form. */
void sp_tensor_attention_take(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys);

/* Computes o of all shares, taken from `pool`; lse and what the backward of attention reads again
 * stay among the layer's activations. */
void sp_tensor_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool);

/* Takes o of all shares once more, if the forward kept the joined o instead; `last`: drops that. */
void sp_tensor_attention_outputs(struct sp_op_ctx *c, struct sp_layer_activations *t, bool last);

/* Computes dq and dkv of all shares, taken from `pool`, from their d_o. Ends the life of `released`
 * bytes. */
void sp_tensor_attention_backward(struct sp_op_ctx *c, int i, struct sp_pool *pool,
                                  int64_t released);

/* Drops q, keys and values, or o with lse, as the flags say. If attention reads joined tensors, the
 * o of the shares stays. */
void sp_tensor_attention_drop(struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                              bool o);
/* Drops o of the shares if attention keeps it joined. */
void sp_tensor_attention_drop_shares(struct sp_op_ctx *c, struct sp_layer_activations *t);
/* Drops what the backward of attention read, but for o. */
void sp_tensor_attention_end(struct sp_op_ctx *c, struct sp_layer_activations *t);

#endif
