/*
 * The two halves of a tensor-parallel layer, before and after attention, for families that run them
 * on different stages. All functions work on the activations `t` of the op's slice; c->ctx.layer is
 * the layer.
 */
#ifndef SP_TENSOR_HALVES_H
#define SP_TENSOR_HALVES_H

#include "graphs/layer/attention.h"
#include "graphs/tensor/shares.h"

/* The weights of a product, and where their gradient goes. */
struct sp_tensor_weights {
    struct sp_tensor *w, *g;
    bool apart; /* the gradient of norm2, or of the gains of heads, is laid out like norm1's */
    bool fresh; /* g = instead of g += */
};

/* Computes q and, with `keys`, kv of all shares into t->shares, taken from `pool`, from the rows n1
 * of this member's share. */
void sp_tensor_qkv_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                           struct sp_tensor *n1, struct sp_tensor *w, bool keys,
                           struct sp_pool *pool);

/* Computes from dq and dkv of all shares the terms that all members add to dn1 of this member's
 * share; its own term is from `pool`. Gradients of the gains of heads go into w->g, see
 * sp_qkv_bwd_insert. If heads have norms, n1 is gathered and stays for the weight gradient. */
void sp_tensor_qkv_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            struct sp_tensor *n1, const struct sp_tensor_weights *w,
                            struct sp_pool *pool, struct sp_shares *dn1);

/* g += dq^T n1, dkv^T n1 or, if `fresh`, g =. Drops n1 of all shares, dq and dkv. Ends the life of
 * `released` bytes. */
void sp_tensor_qkv_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                         struct sp_tensor *g, bool fresh, int64_t released);

struct sp_tensor_post {
    struct sp_tensor *x, *w; /* the residual, the weights */
    struct sp_keep keep;     /* of r, post, n2, u, g in the activations */
    struct sp_tensor *y;     /* the output; NULL: not wanted */
    int64_t stashed;         /* more bytes come alive */
};

/* Computes the half after attention from o of all shares. */
void sp_tensor_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            const struct sp_tensor_post *p);

/* Computes dr from dy, and d_o of all shares into the buffers in t->shares. Keeps du, dy and dr of
 * all shares for the weight gradient. norm2's gradient goes into w->g. */
void sp_tensor_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                             struct sp_tensor *dy, const struct sp_tensor_weights *w,
                             struct sp_tensor *dr);

/* Adds the weight gradients of the output, up and down products to g; drops all that they read from
 * t. Ends the life of `released` bytes. */
void sp_tensor_post_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *w,
                          struct sp_tensor *g, int64_t released);

/*
 * A tensor-parallel layer, whose heads and MLP the members of a stage split (shares.h), as tasks:
 * the same as layer.h, product by product.
 *
 *   n1 = norm1(x)   gather   { q, k, v } of each share
 *   { attention } of each share, over those before it
 *   { o Wo^T }      reduce   r = x + sum, n2 = norm2(r)      gather
 *   { u, g, g Wdown^T }      reduce   y = r + sum
 *
 * and back: dy gathered, { du, dn2 } reduced, dr gathered, { do }, attention, { dn1 } reduced, dx.
 * Weight gradients gather n1 and n2 once more, because a member keeps only its own rows of them.
 * Forward and backward together gather six times and reduce four times.
 */

/* These do the same as the functions of layer.h without `tensor`. */
void sp_tensor_layer_forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x);
void sp_tensor_layer_forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep);
void sp_tensor_layer_forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep,
                                 struct sp_tensor *y, bool stash_y);
void sp_tensor_layer_backward_begin(struct sp_op_ctx *c, int i);
void sp_tensor_layer_backward_attention(struct sp_op_ctx *c, int i);
void sp_tensor_layer_backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx);
void sp_tensor_layer_wgrad(struct sp_op_ctx *c, int i);

#endif
