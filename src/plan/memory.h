/* What a stage holds in memory, computed without running. */
#ifndef SP_MEMORY_H
#define SP_MEMORY_H

#include "model/stash.h"
#include "policies/plan.h"

struct sp_memory {
    int64_t states;      /* weights, gradients, two moments: 16 bytes a parameter */
    int64_t activations; /* stashed from forward to backward, at the peak of the program */
    int64_t
        workspace; /* gradients in flight, recomputed tensors, logits, receive buffers, a step's tokens */
};

struct sp_memory sp_memory_of_stage(const struct sp_plan *plan, const struct sp_shape *sh,
                                    enum sp_recompute recompute, int every, int stage);

/* Parameters that a stage holds, and those of them that it updates. */
int64_t sp_memory_parameters(const struct sp_plan *plan, const struct sp_shape *sh, int stage);
int64_t sp_memory_updated(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of its optimizer's two moments, of those of its states. */
int64_t sp_memory_optimizer(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Its parts where activations come and go by a plan of their own (plan/offload/offload.h): parameters with
 * optimizer; and what is there all the time beside them: scratch buffers, what crosses to other stages, tokens,
 * `slice` being the shape of the longest one. */
int64_t sp_memory_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage);
int64_t sp_memory_fixed(const struct sp_plan *plan, const struct sp_shape *sh,
                        const struct sp_shape *slice, enum sp_recompute recompute, int stage);

/* Bytes of a micro-batch's tokens in two steps at an end of the model: inputs, or targets. */
int64_t sp_memory_tokens(const struct sp_shape *sh);

static inline int64_t sp_memory_sum(const struct sp_memory *m)
{
    return m->states + m->activations + m->workspace;
}

/* What the fullest stage holds; returns which that is. */
int sp_memory_fullest(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *fullest);

/*
 * Refuses a limit (bytes a stage, 0: none) that a stage exceeds: which, by what, what would do.
 * And, with or without a limit, a micro-batch of more rows than an int counts.
 */
int sp_memory_check(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, uint64_t limit);

#endif
