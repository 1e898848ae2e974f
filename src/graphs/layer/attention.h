/*
 * Attention of a layer as tasks, for every family: over all heads, over this process's heads if the
 * members of a stage split them (context/heads.h), or around a ring of members (context/ring.h). It
 * reads and writes the activations of the layer, of this slice and of those before it.
 */
#ifndef SP_GRAPH_ATTENTION_H
#define SP_GRAPH_ATTENTION_H

#include "graphs/op.h"

/* Whether keys and values are there, as attention reads them. */
bool sp_attention_has_keys(const struct sp_layer_activations *t);

/* t->q, and with `keys` t->kv, to where attention reads them: if heads are shared out, else nothing happens. */
void sp_attention_share_out(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys);

/* Computes o, taken from `pool`, and lse of layer i of the chunk. */
void sp_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool);

/* Computes dq and dkv of this slice's tokens, taken from `pool`, from their d_o; with tensor
 * parallelism from the d_o of the parts. Makes dkv of the slices before it or adds to it. Ends the
 * life of `released` bytes. */
void sp_attention_backward(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, struct sp_pool *pool,
                           int64_t released);

/* Drops what it read and wrote, as far as that is said. */
void sp_attention_drop(const struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                       bool o);
/* Drops the tensors of one part of the tokens. */
void sp_heads_drop(struct sp_heads *heads);

#endif
