/*
 * Offloads the activations of a plan (SPPO section 5): describes a stage's work as slots and units
 * (see offload/eviction.h). Pure.
 */
#ifndef SP_PLAN_OFFLOAD_H
#define SP_PLAN_OFFLOAD_H

#include "plan/cost/op_times.h"
#include "plan/memory.h"
#include "plan/offload/request.h"

struct sp_offload {
    int stages;
    struct sp_eviction_plan *evictions; /* [stages] */
    struct sp_memory *memory; /* [stages] activations: the peak with evictions and fetches */
    struct sp_parking
        *parking; /* what stages park on each other, until it is applied; NULL: what the
                                 * plan says */
};

/* Does the same as sp_offload_create, silently. -EINVAL sets *lack to the stage that needs most
 * of those that exceed the limit, its other memory, and the fewest bytes of activations it can
 * hold. */
struct sp_offload_lack {
    int stage;
    struct sp_memory memory;
    int64_t least;
};
int sp_offload_try(const struct sp_plan *plan, const struct sp_shape *sh,
                   const struct sp_offload_request *want, struct sp_offload *offload,
                   struct sp_offload_lack *lack);

/*
 * Chooses what every stage evicts. 0; or one line on stderr and -EINVAL: a stage exceeds the limit
 * with everything evicted (with the smallest limit that would do); -ENOMEM. Replaces a choice that
 * *offload already holds.
 */
int sp_offload_create(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_offload_request *want, struct sp_offload *offload);
void sp_offload_destroy(struct sp_offload *offload);

struct sp_offload_request sp_offload_request(const struct sp_op_terms *terms,
                                             const struct sp_shape *sh, enum sp_offload_mode mode,
                                             int64_t limit);

/* Puts the evictions into the plan, so that its lowering has an EVICT and a FETCH of each; and what
 * stages park on each other, if that was chosen, which the plan takes over. 0 or -ENOMEM. */
int sp_offload_apply(struct sp_offload *offload, const struct sp_shape *sh, struct sp_plan *plan);

/* Takes evictions and what was parked with them out of the plan again. */
void sp_offload_undo(struct sp_plan *plan);

/* Bytes on each tier of all that the forwards of a stage make for their backwards in a step. Evicted
 * ones are counted in whole pages. */
struct sp_tier_bytes {
    int64_t kept, recomputed, parked, evicted;
};
struct sp_tier_bytes sp_offload_tiers(const struct sp_plan *plan, const struct sp_shape *sh,
                                      enum sp_recompute recompute, int every, int stage);

/* The ratio a_i: the part of what a stage may evict or park of a slice that it does, as the mean over
 * micro-batches and chunks. Negative: nothing may leave, because its backward follows. */
double sp_offload_ratio(const struct sp_plan *plan, const struct sp_eviction_plan *a, int stage,
                        int slice);

#endif
