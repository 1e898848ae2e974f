/* What the list simulation expects of a step, from the op times that a step measured. */
#ifndef SP_EXPECTED_H
#define SP_EXPECTED_H

#include "graphs/step.h"

/*
 * What the ops of each global stage cost on average in `report`, in milliseconds, as factors of
 * costs of 1. 0 or -ENOMEM. To be freed.
 */
int sp_expected_costs(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_costs *costs);
void sp_expected_costs_free(struct sp_costs *costs);

/*
 * Times of `plan`, in milliseconds, if every op took what it did in `report`, the runtime's part
 * included, each stage had a core of its own and messages took no time; others go on when an op has
 * written what they wait for, weight gradients come after that. Busy and idle times are those of tasks
 * alone, as measured. 0, or the error of sp_listsim.
 */
int sp_expected_times(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_times *times);

#endif
