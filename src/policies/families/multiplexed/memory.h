/* What a stage holds of others that it computes slices for, and of what crosses between slices
 * (graphs/families/multiplexed/multiplexed.c), computed without running: struct sp_family's travelling and for_others. */
#ifndef SP_MULTIPLEXED_MEMORY_H
#define SP_MULTIPLEXED_MEMORY_H

#include "policies/plan.h"

/* Elements of what parts of shared slices exchange within a layer. */
int64_t sp_multiplexed_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                  int64_t x);

/*
 * Elements of all else, as actions bring and free it: weights and sums of their gradients, keys and values with
 * their gradients, or shares of these, rows that cross; in one process, or where plan->apart says so a stage each. Counted
 * once for a plan and a shape.
 */
int64_t sp_multiplexed_for_others(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

#endif
