/* What a stage holds for the stages that it computes slices for (graphs/multiplexed.c), computed without
 * running. */
#ifndef SP_MEMORY_HELP_H
#define SP_MEMORY_HELP_H

#include "codelets/shape.h"
#include "policies/plan.h"

/*
 * Elements of sums of gradients for all other stages, until a step ends. Where stages are in processes of
 * their own (plan->apart), copies of their weights as well, of the keys and values that its parts read,
 * and its sum of their gradients, at the highest.
 */
int64_t sp_memory_help(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

#endif
