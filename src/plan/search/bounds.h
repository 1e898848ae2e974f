/* Lower bounds of the step and the memory of a layout, whatever its schedule, without a plan of it. Pure. */
#ifndef SP_BOUNDS_H
#define SP_BOUNDS_H

#include "plan/search/found.h"

/*
 * Milliseconds of a step of a layout whose sizes and `zero` are given: each device computes its part of all layers and
 * of the head without waiting once and without computing anything again, then the update and the sums of gradients are
 * those of a device that has its part of all parameters.
 */
double sp_bound_step(const struct sp_search *want, const struct sp_found *f);

/* Bytes of the parameters, gradients and optimizer of the fullest device. */
int64_t sp_bound_memory(const struct sp_search *want, const struct sp_found *f);

/* The time of a mean stage, as a part of the slowest's where layers are dealt out evenly: no partition makes that one's
 * less. */
double sp_bound_balanced(const struct sp_search *want, const struct sp_found *f);

#endif
