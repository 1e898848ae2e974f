/*
 * Offloading the activations of a plan (SPPO section 5): what a stage does as slots and units (see
 * offload/eviction.h), for plans whose stages hold consecutive layers. Pure.
 */
#ifndef SP_PLAN_OFFLOAD_H
#define SP_PLAN_OFFLOAD_H

#include "policies/families/activations.h"
#include "offload/eviction.h"
#include "plan/memory.h"

/* Seconds of a floating-point operation of a layer, forward and backward. */
struct sp_op_speed {
    double fwd_s, bwd_s;
};

struct sp_offload_request {
    enum sp_offload_mode mode;
    int64_t limit;   /* bytes of a stage, states and workspace included; 0: none */
    bool of_machine; /* nobody asked for the limit: there is no more */
    enum sp_recompute recompute;
    int every;
    struct sp_tier_rates rates; /* of a stage's share of the tier; 0: not known */
    struct sp_op_speed speed;   /* 0: not known, a guess that only compares slices */
};

struct sp_offload {
    int stages;
    struct sp_away *away;     /* [stages] */
    struct sp_memory *memory; /* [stages] activations: what stays and comes and goes, at its peak */
};

/* Free buffers of host memory that are kept for the next tensor of their size, at most. */
int64_t sp_offload_idle_bytes(const struct sp_plan *plan, const struct sp_shape *sh);

/* The same without a word: -EINVAL, with the stage that needs most of those that exceed the limit, what
 * else it holds, and the bytes of activations that it holds at least. */
struct sp_offload_lack {
    int stage;
    struct sp_memory memory;
    int64_t least;
};
int sp_offload_try(const struct sp_plan *plan, const struct sp_shape *sh,
                   const struct sp_offload_request *want, struct sp_offload *offload,
                   struct sp_offload_lack *lack);

/*
 * Chooses what leaves on every stage. 0; or one line on stderr and -EINVAL: a limit that a stage exceeds
 * with everything away, with the smallest that would do; -ENOMEM. Made anew if there is one already.
 */
int sp_offload_create(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_offload_request *want, struct sp_offload *offload);
void sp_offload_destroy(struct sp_offload *offload);

/* The part a_i of what may leave of a stage's slice that does, of micro-batches and chunks the mean;
 * negative: nothing may, for its backward follows. */
double sp_offload_ratio(const struct sp_plan *plan, const struct sp_away *a, int stage, int slice);

#endif
