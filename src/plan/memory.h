/* What a stage holds in memory, computed without running. */
#ifndef SP_MEMORY_H
#define SP_MEMORY_H

#include "model/stash.h"
#include "policies/plan.h"

struct sp_count; /* graphs/count.h */

struct sp_memory {
    int64_t states;      /* weights, gradients, two moments: 16 bytes a parameter */
    int64_t activations; /* stashed from forward to backward, at the peak of the program */
    int64_t
        workspace; /* gradients in flight, recomputed tensors, logits, receive buffers, a step's tokens */
};

/* m[stages], counted by the graph that runs as if nothing left memory, in plan->processes. 0 or -errno after one line:
 * there is no such graph. */
int sp_memory_of_plan(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *m);

/* The same where buffers are freed as soon as nothing needs them: the workspace at its highest, whatever is kept then. */
int sp_memory_freed(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, struct sp_memory *m);

/* The same as counts, counted[stages], one copy of the states among them. */
int sp_memory_count(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, struct sp_count *counted);

/* States and activations of a stage alone, which is less than it holds and known at once. */
int64_t sp_memory_least(const struct sp_plan *plan, const struct sp_shape *sh,
                        enum sp_recompute recompute, int every, int stage);

/* Parameters that a stage holds, and those of them that it updates. */
int64_t sp_memory_parameters(const struct sp_plan *plan, const struct sp_shape *sh, int stage);
int64_t sp_memory_updated(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of its optimizer's two moments, of those of its states. */
int64_t sp_memory_optimizer(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of its parameters, gradients and optimizer. */
int64_t sp_memory_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of a micro-batch's tokens in two steps at an end of the model: inputs, or targets. */
int64_t sp_memory_tokens(const struct sp_shape *sh);

static inline int64_t sp_memory_sum(const struct sp_memory *m)
{
    return m->states + m->activations + m->workspace;
}

/* What the fullest stage holds, *stage unless NULL; and errors, likewise. */
int sp_memory_fullest(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *fullest,
                      int *stage);

/*
 * Refuses a limit (bytes a stage, 0: none) that a stage exceeds: which, by what, what would do.
 * And, with or without a limit, a micro-batch of more rows than an int counts.
 */
int sp_memory_check(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, uint64_t limit);

#endif
