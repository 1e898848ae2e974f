/*
 * What a micro-batch keeps from its forward to its backward. Pure: the graph, the planner and the
 * tests share it.
 */
#ifndef SP_STASH_H
#define SP_STASH_H

#include "model/stash.h"
#include "policies/families/ownership.h"

/* Does an op end the life of its micro-batch's activations: a W, or a B that no W completes? */
bool sp_op_releases(const struct sp_plan *plan, int stage, const struct sp_op *op);

/* How a layer is recomputed: as the plan says of it, otherwise `recompute`. */
static inline enum sp_recompute sp_layer_recompute(const struct sp_plan *plan,
                                                   enum sp_recompute recompute, int layer)
{
    return plan->recompute ? (enum sp_recompute)plan->recompute[layer] : recompute;
}

/* The same of an op whose attention is not computed again: several stages share it. */
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

/* Whether a backward that has weight gradients too computes a layer's MLP again in chunks of rows, with no more than one
 * chunk of its inside: where it is cut at all, and comes back with the rest (codelets/post_again.c). */
static inline bool sp_mlp_comes_in_chunks(const struct sp_shape *sh, enum sp_recompute mode)
{
    return sh->mlp_rows < sh->rows && sh->tensor == 1 &&
           (mode == SP_RECOMPUTE_NO_ATTENTION || mode == SP_RECOMPUTE_FULL);
}

/* Elements that n values in f32 take: gradients of parameters. */
static inline int64_t sp_in_f32(const struct sp_shape *sh, int64_t n)
{
    return (int64_t)sp_shape_f32(sh, (uint64_t)n);
}

/* Bytes kept for the head, if the op's chunk is the last; `part`: the shape of its slice. */
int64_t sp_stash_head_input(const struct sp_plan *plan, const struct sp_shape *part, int stage,
                            const struct sp_op *op);

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

/* What an op of a class keeps from its start, 0 unless it is a forward, and lets go at its end: of the classes of a stage,
 * from classes.first[stage] on. To be freed. */
struct sp_class_stash {
    int64_t taken, freed;
};
struct sp_class_stash *sp_stash_by_class(const struct sp_plan *plan, const struct sp_shape *sh,
                                         enum sp_recompute recompute, int every, int stage);
/* Their highest sum while the stage runs its program. */
int64_t sp_class_stash_peak(const struct sp_plan *plan, const struct sp_class_stash *stash,
                            int stage);

/* Highest sum of stashed bytes while a stage runs its program. */
int64_t sp_stash_peak(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, int stage);

#endif
