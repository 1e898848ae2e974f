/* What a stage holds for the stages that it computes slices for (graphs/multiplexed.c), computed without
 * running. */
#ifndef SP_MEMORY_HELP_H
#define SP_MEMORY_HELP_H

#include "codelets/shape.h"
#include "policies/plan.h"

/*
 * Says that stages are in processes of their own, and counts what each has copies of (plan->copies): keys
 * and values that its parts read, and its sum of their gradients, at the highest. After slices were set.
 * 0, or -ENOMEM after one line on stderr.
 */
int sp_memory_apart(struct sp_plan *plan, const struct sp_shape *sh);

/*
 * Elements of sums of gradients for all other stages, until a step ends; where stages are apart, copies of
 * their weights as well, and of keys and values.
 */
int64_t sp_memory_help(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

#endif
