/* Computes the memory that a stage holds, without running it. */
#ifndef SP_MEMORY_H
#define SP_MEMORY_H

#include "model/stash.h"
#include "policies/plan.h"

struct sp_count; /* graphs/count.h */

struct sp_memory {
    int64_t states;      /* weights, gradients, two moments: 16 bytes a parameter */
    int64_t activations; /* stashed from forward to backward, at the peak of the program */
    int64_t
        workspace; /* gradients in transit, recomputed tensors, logits, receive buffers, tokens */
};

/* Sets m[stages], counted by the graph that would run in plan->processes if nothing were evicted. 0
 * or -errno after one line: there is no such graph. */
int sp_memory_of_plan(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *m);

/* The same if buffers are freed as soon as nothing needs them: the workspace is its peak, whatever
 * is stashed at that moment. */
int sp_memory_freed(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, struct sp_memory *m);

/* The same for a plan with these evictions, evictions[stages], of which only keys leave. */
struct sp_eviction_plan;
int sp_memory_evicted(const struct sp_plan *plan, const struct sp_eviction_plan *evictions,
                      const struct sp_shape *sh, enum sp_recompute recompute, int every,
                      struct sp_memory *m);

/* The same as raw counts, counted[stages], with one copy of the states. */
int sp_memory_count(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, struct sp_count *counted);

/* States and activations of a stage: a lower bound of its bytes that needs no counting. */
int64_t sp_memory_least(const struct sp_plan *plan, const struct sp_shape *sh,
                        enum sp_recompute recompute, int every, int stage);

/* Parameters that a stage holds, and the part of them that it updates. */
int64_t sp_memory_parameters(const struct sp_plan *plan, const struct sp_shape *sh, int stage);
int64_t sp_memory_updated(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Parameters whose gradients are summed over the pipelines when a step ends, and whose weights are
 * gathered when it begins. With --zero 2 and 3 those of layers come and go with its ops. */
struct sp_shared_parameters {
    int64_t gradients, weights;
};
struct sp_shared_parameters sp_memory_shared(const struct sp_plan *plan, const struct sp_shape *sh,
                                             int stage);

/* Blocks in a row whose optimizer's state is in memory at once if it is evicted: one leaves, one is
 * updated, one comes. */
enum { SP_STATES_AROUND = 3 };

/* Bytes of that state on the slower tier, and of what is copied there for cores that update it; 0:
 * it is not evicted. */
int64_t sp_memory_evicted_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of the optimizer's two moments that are in memory at once, which its states include. */
int64_t sp_memory_optimizer(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of its parameters, gradients and optimizer. */
int64_t sp_memory_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Bytes of a micro-batch's tokens at one end of the model, for two steps: inputs, or targets. */
int64_t sp_memory_tokens(const struct sp_shape *sh);

static inline int64_t sp_memory_sum(const struct sp_memory *m)
{
    return m->states + m->activations + m->workspace;
}

/* Sets *fullest to the memory of the fullest stage, and *stage to its index unless NULL. 0 or the
 * error of sp_memory_of_plan. */
int sp_memory_fullest(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *fullest,
                      int *stage);

/*
 * Refuses a limit (bytes a stage, 0: none) that a stage exceeds; the message says which stage, by
 * how much, and what would do. Always refuses a micro-batch of more rows than an int counts.
 */
int sp_memory_check(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, uint64_t limit);

#endif
