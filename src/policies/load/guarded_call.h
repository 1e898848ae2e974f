/* Calls of the functions of a schedule, those of a plugin under guard. Each says what it refuses. */
#ifndef SP_CALL_H
#define SP_CALL_H

#include "policies/plan.h"

/* Whether the schedule can do the layout, by its check and a sane makespan: 0 or -EINVAL. */
int sp_call_check(const struct sp_plan *plan);

/* Tabulates its placement in plan->map: 0, -EINVAL or -ENOMEM. */
int sp_call_place(struct sp_plan *plan);

/* Fills plan->programs, which hold SP_MAX_OPS ops at most: 0, -EINVAL or -ENOMEM. */
int sp_call_emit(struct sp_plan *plan);

#endif
