/*
 * The two halves of a layer that members share, for families that run them on different stages: before attention and
 * after it. All work on the layer's flight `t` of the op's slice; c->ctx.layer is the layer.
 */
#ifndef SP_TENSOR_HALVES_H
#define SP_TENSOR_HALVES_H

#include "graphs/layer/attention.h"
#include "graphs/tensor/shares.h"

/* q and, with `keys`, kv of all shares into t->shares, from `pool`, of the rows n1 of this member's share. */
void sp_tensor_qkv_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                           struct sp_tensor *n1, struct sp_tensor *w, bool keys,
                           struct sp_pool *pool);

/* What all members add to dn1 of this member's share, its own part from `pool`, of dq and dkv of all shares; gains of
 * heads in g, as sp_qkv_bwd_insert has it. Where heads have norms n1 is gathered, and stays for the weight gradient. */
void sp_tensor_qkv_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *g,
                            bool apart, bool fresh, struct sp_pool *pool, struct sp_shares *dn1);

/* g += dq^T n1, dkv^T n1, or, `fresh`, =; n1 of all shares, dq and dkv go. Ends the life of `released` bytes. */
void sp_tensor_qkv_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                         struct sp_tensor *g, bool fresh, int64_t released);

/* From o of all shares and the residual x: y, if not NULL, and what `keep` says in t: r, post, n2, u, g. `stashed` bytes
 * besides come alive. */
void sp_tensor_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            struct sp_tensor *x, struct sp_tensor *w, struct sp_keep keep,
                            struct sp_tensor *y, int64_t stashed);

/* dr, and d_o of all shares, which are in t->shares to be written, from dy; du, dy and dr of all shares stay for the
 * weight gradient. norm2's gradient goes into g, or, `apart`, into one laid out like norm1's. */
void sp_tensor_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                             struct sp_tensor *dy, struct sp_tensor *w, struct sp_tensor *g,
                             bool apart, struct sp_tensor *dr);

/* g += of output, up and down; what they read of t goes. Ends the life of `released` bytes. */
void sp_tensor_post_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *w,
                          struct sp_tensor *g, int64_t released);

#endif
