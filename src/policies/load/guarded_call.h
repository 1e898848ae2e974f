/* Calls of a schedule's functions, guarded if they are a plugin's. Each prints a line about what it
 * refuses. */
#ifndef SP_CALL_H
#define SP_CALL_H

#include "policies/plan.h"

/* Checks that the schedule can do the layout: its check passes and its makespan is sane. 0 or
 * -EINVAL. */
int sp_call_check(const struct sp_plan *plan);

/* Tabulates its placement in plan->map: 0, -EINVAL or -ENOMEM. */
int sp_call_place(struct sp_plan *plan);

/* Fills plan->programs with at most SP_MAX_OPS ops: 0, -EINVAL or -ENOMEM. */
int sp_call_emit(struct sp_plan *plan);

#endif
