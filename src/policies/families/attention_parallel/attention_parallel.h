/*
 * What stages hold where parts of layers are the ops (attention-parallel): the halves of activations.h for
 * that family. Letters: x = bsh numbers, q and kv the widths of a token times bs.
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
#ifndef SP_STASH_PARTS_H
#define SP_STASH_PARTS_H

#include "policies/families/activations.h"

int sp_parts_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg);

/* The stage of a block. */
int sp_parts_holder(const struct sp_plan *plan, enum sp_block_kind kind, int layer);

/* Bytes kept by the part that an op works on. */
int64_t sp_parts_stash_of_op(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, int stage, const struct sp_op *op);

/* Bytes of the head's input, which dies before the rest of what block L keeps. */
int64_t sp_parts_head_input(const struct sp_plan *plan, const struct sp_shape *sh,
                            enum sp_recompute recompute, const struct sp_op *op);

/* Bytes beside them: of ops at work, of messages on their way, of weights shipped here. */
int64_t sp_parts_workspace(const struct sp_plan *plan, const struct sp_shape *sh,
                           enum sp_recompute recompute, int stage);

#endif
