/* The messages of a step, as its actions send and receive them. */
#ifndef SP_TRAFFIC_H
#define SP_TRAFFIC_H

#include "policies/plan.h"

/*
 * Walks the actions of a step of a verified plan and counts plan->transit. 0; -ENOMEM; or -EINVAL with the
 * reason in why[n]: a tensor is received before it was sent, sent and never received, or replicas are summed
 * in different orders.
 */
int sp_plan_check_traffic(struct sp_plan *plan, char *why, size_t n);

#endif
