/*
 * Offloading the activations of a plan (SPPO section 5): what a stage does as slots and units (see
 * offload/eviction.h). Pure.
 */
#ifndef SP_PLAN_OFFLOAD_H
#define SP_PLAN_OFFLOAD_H

#include "plan/memory.h"
#include "plan/cost/op_times.h"
#include "plan/offload/units.h"

struct sp_offload {
    int stages;
    struct sp_eviction_plan *evictions; /* [stages] */
    struct sp_memory *memory; /* [stages] activations: what stays and comes and goes, at its peak */
};

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

/* What a stage does on a machine: its tier's rates (a GPU's copies, a CPU's disk), and the request of a stage that
 * has so many bytes, 0: no limit. */
struct sp_tier_rates sp_offload_tier(const struct sp_machine *machine, int devices);
struct sp_offload_request sp_offload_request(const struct sp_op_terms *terms,
                                             const struct sp_shape *sh, enum sp_offload_mode mode,
                                             int64_t limit);

/* Says in the plan what leaves, so that its lowering has an EVICT and a FETCH of each. 0 or -ENOMEM. */
int sp_offload_apply(const struct sp_offload *offload, const struct sp_shape *sh,
                     struct sp_plan *plan);

/* The part a_i of what may leave of a stage's slice that does, of micro-batches and chunks the mean;
 * negative: nothing may, for its backward follows. */
double sp_offload_ratio(const struct sp_plan *plan, const struct sp_eviction_plan *a, int stage,
                        int slice);

#endif
