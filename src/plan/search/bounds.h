/* Lower bounds on the step and the memory of a layout under any schedule, without making a plan.
 * Pure. */
#ifndef SP_BOUNDS_H
#define SP_BOUNDS_H

#include "plan/search/found.h"

/*
 * Milliseconds of a step of a layout whose sizes and `zero` are given. Each device computes its
 * part of all layers and of the head without any wait or recomputation. Then come the update and
 * the sums of gradients for a device with its part of all parameters.
 */
double sp_bound_step(const struct sp_search *want, const struct sp_found *f);

/* Bytes of the parameters, gradients and optimizer of the fullest device. */
int64_t sp_bound_memory(const struct sp_search *want, const struct sp_found *f);

/* The time of a mean stage divided by that of the slowest if layers are dealt out evenly: no
 * partition shortens the slowest stage by more. */
double sp_bound_balanced(const struct sp_search *want, const struct sp_found *f);

#endif
