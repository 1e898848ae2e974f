/* The messages of a step, as its actions send and receive them. */
#ifndef SP_TRAFFIC_H
#define SP_TRAFFIC_H

#include "model/stash.h"
#include "policies/plan.h"

/*
 * Walks the actions of a step of a verified plan and keeps plan->order. 0; -ENOMEM; or -EINVAL with
 * the reason in why[n]: a tensor is received before it was sent, sent and never received, or
 * replicas are summed in different orders.
 */
int sp_plan_check_traffic(struct sp_plan *plan, char *why, size_t n);

/* Payload that each stage sends in one step, by receiver: bytes[stages][stages]. If several
 * pipelines share the step, the stages are those of the first. Each stage is in a process of its
 * own. Every other member of a collective receives the same amount. bytes[s][s] is what the devices
 * of a stage, or its pipelines, send each other. 0 or -ENOMEM. */
int sp_plan_bytes_by_link(const struct sp_plan *plan, const struct sp_shape *shape,
                          enum sp_recompute recompute, int every, int64_t *bytes);

#endif
