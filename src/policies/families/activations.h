/*
 * The bytes a micro-batch keeps from its forward to its backward. Pure: the graph, the planner and
 * the tests share it.
 */
#ifndef SP_STASH_H
#define SP_STASH_H

#include "model/stash.h"
#include "policies/families/ownership.h"

/* True for an op that ends the life of its micro-batch's activations: a W, or a B that no W
 * completes. */
bool sp_op_releases(const struct sp_plan *plan, int stage, const struct sp_op *op);

/* The recompute mode of a layer: the plan's own for it, if there is one, otherwise `recompute`. */
static inline enum sp_recompute sp_layer_recompute(const struct sp_plan *plan,
                                                   enum sp_recompute recompute, int layer)
{
    return plan->recompute ? (enum sp_recompute)plan->recompute[layer] : recompute;
}

/* The same for an op whose attention several stages share: attention is never recomputed. */
static inline enum sp_recompute sp_recompute_keeping_attention(enum sp_recompute mode)
{
    return mode == SP_RECOMPUTE_FULL ? SP_RECOMPUTE_NO_ATTENTION : mode;
}

static inline enum sp_recompute sp_op_recompute(const struct sp_plan *plan, const struct sp_op *op,
                                                enum sp_recompute mode)
{
    const struct sp_family *family = plan->family;

    return family->shared && family->shared->keeps_attention(&plan->layout, op)
               ? sp_recompute_keeping_attention(mode)
               : mode;
}

/* True if a backward that also computes weight gradients recomputes a layer's MLP in chunks of
 * rows, so that the inside of only one chunk exists at a time: if the shape cuts it, and the mode
 * recomputes it (codelets/post_again.c). */
static inline bool sp_mlp_comes_in_chunks(const struct sp_shape *sh, enum sp_recompute mode)
{
    return sh->mlp_rows < sh->rows &&
           (mode == SP_RECOMPUTE_NO_ATTENTION || mode == SP_RECOMPUTE_FULL);
}

/* Bytes kept for the head, if the op's chunk is the last; `part` is the shape of its slice. */
int64_t sp_stash_head_input(const struct sp_plan *plan, const struct sp_shape *part, int stage,
                            const struct sp_op *op);

/*
 * Bytes that one micro-batch stashes in a chunk of `count` layers between its forward and its
 * backward. With `last` the chunk ends in the head, whose input is kept as well. By layer:
 *   none 16bsh + stats and log-sum-exp (GPT-2 style, f = 4h), selective 10bsh, no-attention 2bsh,
 *   full bsh for every K-th layer.
 */
int64_t sp_stash_bytes(const struct sp_shape *sh, enum sp_recompute recompute, int every, int count,
                       bool last);

/* The same for the chunk and slice that an op of a stage works on, with the plan's own layers. Keys
 * and values of a slice are kept whatever the mode: later slices read them. */
int64_t sp_stash_of_op(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int every, int stage, const struct sp_op *op);

/* Bytes of that stash that are freed when the op ends: B frees the head's input, the op that
 * releases the rest frees it. */
int64_t sp_stash_freed_by_op(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, int every, int stage,
                             const struct sp_op *op);

/* Highest sum of stashed bytes while a stage runs its program. */
int64_t sp_stash_peak(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, int stage);

#endif
