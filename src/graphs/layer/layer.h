/*
 * One layer of one micro-batch as tasks: forward, input gradient, weight gradient, and the life
 * of the tensors between them. Graph families that keep layers on a stage share it.
 */
#ifndef SP_LAYER_H
#define SP_LAYER_H

#include "graphs/layer/attention.h"

/*
 * The forward of layer i of the chunk from its x; y NULL: only what the backward needs. `stash_x`
 * and `stash_y`: x and y count as stashed from here on. In three parts: up to attention, which
 * leaves q, k and v; attention; the rest.
 */
void sp_layer_forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x);
void sp_layer_forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep);
void sp_layer_forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y,
                          bool stash_y);
/* All three; without attention if keep.has_attn. */
void sp_layer_forward(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y);

/* The input gradient of layer i, dx from its dy, likewise; the first part leaves the gradient of o;
 * all keep what the weight gradient needs. */
void sp_layer_backward_begin(struct sp_op_ctx *c, int i);
void sp_layer_backward_attention(struct sp_op_ctx *c, int i);
void sp_layer_backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx);

/* Computes the weight gradient of layer i of the chunk; frees all that the layer still holds. */
void sp_layer_wgrad(struct sp_op_ctx *c, int i);

/* Drops everything that the forward of a layer left, to undo it; `parts` as from
 * sp_activations_parts. */
void sp_layer_drop(struct sp_layer_activations *t, int parts);

/* Runs the forward of layer i of the chunk again; `output`: also what the next layer reads. */
void sp_layer_forward_again(struct sp_op_ctx *c, int i, bool output);

#endif
