/*
 * One layer of one micro-batch as tasks: forward, input gradient, weight gradient, and the life
 * of the tensors between them. Graph families that keep layers on a stage share it.
 */
#ifndef SP_LAYER_H
#define SP_LAYER_H

#include "graphs/layer/attention.h"

/*
 * Forward of layer i of the chunk from its x; y NULL: only what the backward needs. `stash_x`, `stash_y`: x and
 * y count as stashed from here on.
 */
void sp_layer_forward(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x,
                      struct sp_tensor *y, bool stash_y);

/* Input gradient of layer i: dx from its dy; leaves what the weight gradient needs. */
void sp_layer_backward(struct sp_op_ctx *c, int i, struct sp_tensor *dx);

/* Each of them in parts: what comes before attention, which leaves q, k and v, or the gradient of o; attention; what
 * comes after it. */
void sp_layer_forward_begin(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x);
void sp_layer_forward_attention(struct sp_op_ctx *c, int i, struct sp_keep keep);
void sp_layer_forward_end(struct sp_op_ctx *c, int i, struct sp_keep keep, struct sp_tensor *y,
                          bool stash_y);
void sp_layer_backward_begin(struct sp_op_ctx *c, int i);
void sp_layer_backward_attention(struct sp_op_ctx *c, int i);
void sp_layer_backward_end(struct sp_op_ctx *c, int i, struct sp_tensor *dx);

/* Weight gradient of layer i of the chunk; frees all that the layer still holds. */
void sp_layer_wgrad(struct sp_op_ctx *c, int i);

/* Gives back everything that a forward left of a layer, which is undone; `parts` as sp_activations_parts has them. */
void sp_layer_drop(struct sp_layer_activations *t, int parts);

/* Runs the forward of layers a..b-1 of the chunk again, from the input of layer a. */
void sp_layers_recompute(struct sp_op_ctx *c, int a, int b);

#endif
