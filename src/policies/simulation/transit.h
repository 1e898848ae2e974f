/* How many tensors are on their way between stages at once. */
#ifndef SP_TRANSIT_H
#define SP_TRANSIT_H

#include "policies/plan.h"

/* Counts plan->transit, from the op that sends a tensor to the op that takes it, both at their
 * places in the order of submission. 0 or -ENOMEM. */
int sp_plan_count_transit(struct sp_plan *plan);

#endif
