/* What a stage holds for the stages that it computes slices for (graphs/families/multiplexed.c), computed without
 * running: struct sp_family's travelling, for_others and apart. */
#ifndef SP_MULTIPLEXED_MEMORY_H
#define SP_MULTIPLEXED_MEMORY_H

#include "policies/plan.h"

int64_t sp_multiplexed_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                  int64_t x);

/*
 * Elements of sums of gradients for all other stages, until a step ends; where stages are apart, copies of
 * their weights as well, and of keys and values.
 */
int64_t sp_multiplexed_for_others(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Counts what each stage has copies of (struct sp_multiplex_cut): keys and values that its parts read, and its
 * sum of their gradients, at the highest. */
int sp_multiplexed_apart(struct sp_plan *plan, const struct sp_shape *sh);

#endif
