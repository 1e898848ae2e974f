/* Costs of the list simulation from the op times that a step measured. */
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

#endif
