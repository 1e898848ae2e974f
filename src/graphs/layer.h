/*
 * One layer of one micro-batch as tasks: forward, input gradient, weight gradient, and the life
 * of the tensors between them. Graph families that keep layers on a stage share it.
 */
#ifndef SP_LAYER_H
#define SP_LAYER_H

#include "graphs/attention.h"

/* What a forward of a layer writes and keeps. */
struct sp_keep {
    bool saved, keep_outputs; /* pre and post saved; with the outputs of norms and activations */
    bool qkv;                 /* q, k, v */
    bool attn;                /* o and log-sum-exp */
    bool has_attn;            /* they are there already: attention does not run again */
    bool stash;               /* what is kept counts as stashed */
};

struct sp_keep sp_keep_in_forward(enum sp_recompute recompute);

/* How layer i of the chunk is recomputed. */
enum sp_recompute sp_chunk_recompute(const struct sp_op_ctx *c, int i);

/*
 * Forward of layer i of the chunk from its x; y NULL: only what the backward needs. `stash_x`, `stash_y`: x and
 * y count as stashed from here on.
 */
void sp_layer_forward(struct sp_op_ctx *c, int i, struct sp_keep keep, bool stash_x,
                      starpu_data_handle_t y, bool stash_y);

/* Input gradient of layer i: dx from its dy; leaves what the weight gradient needs. */
void sp_layer_backward(struct sp_op_ctx *c, int i, starpu_data_handle_t dx);

/* Weight gradient of layer i of the chunk; frees all that the layer still holds. */
void sp_layer_wgrad(struct sp_op_ctx *c, int i);

/* Runs the forward of layers a..b-1 of the chunk again, from the input of layer a. */
void sp_layers_recompute(struct sp_op_ctx *c, int a, int b);

/* Weights and gradients of blocks of this stage, or of c->w and c->gradient; NULL where the model has none. */
starpu_data_handle_t sp_weight(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);
starpu_data_handle_t sp_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);

/* (T,h) tensors: inside a stage; across stages, where `st` is the one that reads them. */
starpu_data_handle_t sp_take_hidden(struct sp_op_ctx *c, const char *name);
starpu_data_handle_t sp_take_boundary(struct sp_op_ctx *c, struct sp_stage *st, const char *name);

#endif
