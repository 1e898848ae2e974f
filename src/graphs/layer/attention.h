/*
 * Attention of a layer as tasks, for every family: over all heads, over this process's heads if the
 * members of a stage split them (context/heads.c), or around a ring of members (context/ring.c). It
 * reads and writes the activations of the layer, of this slice and of those before it.
 */
#ifndef SP_GRAPH_ATTENTION_H
#define SP_GRAPH_ATTENTION_H

#include "graphs/op.h"

/* True if keys and values exist in the form that attention reads. */
bool sp_attention_has_keys(const struct sp_layer_activations *t);

/* If members split heads, exchanges t->q, and with `keys` t->kv, into the form that attention
 * reads; else does nothing. */
void sp_attention_share_out(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys);

/* Computes o, taken from `pool`, and lse of layer i of the chunk. */
void sp_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool);

/* Computes dq and dkv of this slice's tokens, taken from `pool`, from their d_o, which stays. Makes
 * dkv of the slices before it or adds to it. Ends the life of `released` bytes. */
void sp_attention_backward(struct sp_op_ctx *c, int i, struct sp_pool *pool, int64_t released);

/* The same with the gradient of o, of which the backward begins. An op with c->attend calls it. */
void sp_attention_share_out_gradient(struct sp_op_ctx *c, struct sp_layer_activations *t);

/* When c->attend replaced attention and its results are complete: exchanges them back to all heads of
 * this process's tokens, if members split heads. */
void sp_attention_collect(struct sp_op_ctx *c, int i);

/* Drops q, keys and values, or o with lse, as the flags say. */
void sp_attention_drop(const struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                       bool o);
/* Drops the tensors of one part of the tokens. */
void sp_heads_drop(struct sp_heads *heads);
/* The place of a tensor that attention reads or writes, or of its gradient. */
struct sp_tensor **sp_heads_tensor(struct sp_heads *heads, enum sp_tensor_kind kind);

#endif
