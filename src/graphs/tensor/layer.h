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
#ifndef SP_TENSOR_LAYER_H
#define SP_TENSOR_LAYER_H

#include "graphs/layer/attention.h"
#include "graphs/tensor/shares.h"

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
