/*
 * Attention of a layer as tasks, for every family that has it: of whole heads, of the heads that this process has where
 * members of a stage share them out (context/heads.h), or around a ring of them (context/ring.h). What it reads and
 * writes is in the layer's flight, of this slice and of those before it.
 */
#ifndef SP_GRAPH_ATTENTION_H
#define SP_GRAPH_ATTENTION_H

#include "graphs/op.h"

/* Whether keys and values are there, as attention reads them. */
bool sp_attention_has_keys(const struct sp_layer_activations *t);

/* t->q, and with `keys` t->kv, to where attention reads them: if heads are shared out, else nothing happens. */
void sp_attention_share_out(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys);

/* o, from `pool`, and lse of layer i of the chunk. */
void sp_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool);

/* dq and dkv, from `pool`, of this slice's tokens here, from d_o of them, or, where members share parameters, from those
 * of the parts; dkv of the slices before it is made or
 * added to. Ends the life of `released` bytes. */
void sp_attention_backward(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, struct sp_pool *pool,
                           int64_t released);

/* Drops what it read and wrote, as far as that is said. */
void sp_attention_drop(const struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                       bool o);
/* Of one part of the tokens. */
void sp_heads_drop(struct sp_heads *heads);

#endif
