/*
 * Parts of layers as ops (attention-parallel): where they are, and what stages hold of them. Letters: x =
 * bsh numbers, q and kv the widths of a token times bs.
 *
 * Kept from forward to backward, in floats (HelixPipe section 4.4: 4bsh a layer, of which x + q with
 * attention and x + q with the block after it):
 *
 *   attention of layer l   weights: n1 (x), o (q), log-sum-exp; none and selective: q, kv too
 *                          activations: q, kv, o, log-sum-exp
 *   block j > 0, post      no-attention: residual (x), o (q); none and selective: o, post saved
 *   block j < L, pre       none and selective: x, and weights: statistics; activations: pre saved
 *   block L                none and selective: x, the head's input
 *
 * A block that follows attention on its own stage shares o with it.
 */
#ifndef SP_ATTENTION_PARALLEL_H
#define SP_ATTENTION_PARALLEL_H

#include "policies/families/activations.h"

/* The stage of parameter block j of 0 .. layers, and of attention of a layer. */
int sp_block_stage(const struct sp_layout *lay, int j);
int sp_attention_stage(const struct sp_layout *lay, int mb, int layer);

/*
 * Whether the QKV weights go to attention with the product's input (2bsh + 3h^2 numbers a message with
 * those of the residual), or q, k, v do (4bsh): what qkv= says, by default the smaller (HelixPipe section
 * 4.2).
 */
bool sp_ships_weights(const struct sp_plan *plan, const struct sp_shape *sh);

/* Bytes kept by the part that an op works on, *head of them by the head's input, which dies first. */
int64_t sp_parts_stash(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int stage, const struct sp_op *op,
                       int64_t *head);

/* Elements beside them: of ops at work, of messages on their way, of weights shipped here. */
int64_t sp_parts_workspace(const struct sp_plan *plan, const struct sp_shape *sh,
                           enum sp_recompute recompute, int stage);

#endif
