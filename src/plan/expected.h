/* Costs of the list simulation from the op times that a step measured. */
#ifndef SP_EXPECTED_H
#define SP_EXPECTED_H

#include "graphs/step.h"

/*
 * Sets the costs to the mean times, in milliseconds, of the ops of each global stage in `report`,
 * as factors of costs of 1. Returns 0. The caller frees them.
 */
int sp_expected_costs(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_costs *costs);
void sp_expected_costs_free(struct sp_costs *costs);

#endif
