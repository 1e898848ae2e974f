/*
 * What a micro-batch keeps from its forward to its backward, and how layers are dealt out. Pure:
 * the graph, the planner and the tests share it.
 */
#ifndef SP_STASH_H
#define SP_STASH_H

#include "codelets/shape.h"
#include "policies/plan.h"

/* Layers first .. first+count-1 of a global stage: L split evenly, the first ones take the rest. */
void sp_partition(int layers, int parts, int part, int *first, int *count);

/* First layer and count of a chunk of a stage. */
void sp_chunk_layers(const struct sp_plan *plan, int layers, int stage, int chunk, int *first,
                     int *count);

/* Layers of a stage; where ops are parts of layers, its blocks that end one. */
int sp_stage_layers(const struct sp_plan *plan, int layers, int stage);

/* Layers of chunk c of a model cut into `parts`, as the plan says. */
void sp_part_layers(const struct sp_plan *plan, int layers, int parts, int c, int *first,
                    int *count);

/* Whether every stage has a replica of a block: embedding and head where weights travel. */
bool sp_block_is_everywhere(const struct sp_plan *plan, int layer);

/* Whether a stage begins (`last`: ends) the model for the micro-batches that do so there. */
bool sp_is_end_stage(const struct sp_plan *plan, int stage, bool last);

/*
 * Attention-parallel: whether the QKV weights go to attention with the product's input (2bsh + 3h^2
 * numbers a message with those of the residual), or q, k, v do (4bsh): what qkv= says, by default
 * the smaller (HelixPipe section 4.2).
 */
bool sp_ships_weights(const struct sp_plan *plan, const struct sp_shape *sh);

/* Does an op end the life of its micro-batch's activations: a W, or a B that no W completes? */
bool sp_op_releases(const struct sp_plan *plan, int stage, const struct sp_op *op);

/*
 * Calls fn for every parameter block that a stage holds, each once: what its first chunk may begin
 * with (tables), its layers, what its last chunk may end in (final norm, head). The stages of both
 * ends hold a tied table. Stops at the first error of fn and returns it.
 */
typedef int (*sp_stage_block_fn)(void *arg, enum sp_block_kind kind, int layer);
int sp_stage_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg);

/*
 * The stages that hold a block, in ascending order; returns how many. More than one: replicas,
 * whose gradients are summed (tied tables of both ends; the two pipes of a bidirectional plan).
 */
#define SP_MAX_HOLDERS 4
int sp_block_holders(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                     int layer, int stages[SP_MAX_HOLDERS]);

/* How a layer is recomputed: as the plan says of it, otherwise `recompute`. */
static inline enum sp_recompute sp_layer_recompute(const struct sp_plan *plan,
                                                   enum sp_recompute recompute, int layer)
{
    return plan->recompute ? (enum sp_recompute)plan->recompute[layer] : recompute;
}

/*
 * Bytes that one micro-batch stashes in a chunk of `count` layers between its forward and its
 * backward; `last`: the chunk that ends in the head, whose input is kept as well. By layer:
 *   none 16bsh + stats and log-sum-exp (GPT-2 style, f = 4h), selective 10bsh, no-attention 2bsh,
 *   full bsh for every K-th layer.
 */
int64_t sp_stash_bytes(const struct sp_shape *sh, enum sp_recompute recompute, int every, int count,
                       bool last);

/* The same for the chunk and slice that an op of a stage works on, with the plan's own layers. Keys
 * and values of a slice are kept whatever the mode: later slices read them. */
int64_t sp_stash_of_op(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int every, int stage, const struct sp_op *op);

/* What dies of it when the op ends: the head's input with B, the rest with what releases it. */
int64_t sp_stash_freed_by_op(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, int every, int stage,
                             const struct sp_op *op);

/* Highest sum of stashed bytes while a stage runs its program. */
int64_t sp_stash_peak(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, int stage);

#endif
