/* The times of a plan's ops, and what follows from them. */
#ifndef SP_TIMES_H
#define SP_TIMES_H

#include "policies/plan.h"

/* Room for the times of every op, all 0. 0 or -ENOMEM. */
int sp_times_create(const struct sp_plan *plan, struct sp_times *t);

/* Makespan, span, idle, busy, peak_live and bubble_ratio, from `start` and `end`. */
void sp_times_summarize(const struct sp_plan *plan, const struct sp_costs *costs,
                        struct sp_times *t);

#endif
