/* The messages of a step, as its actions send and receive them. */
#ifndef SP_TRAFFIC_H
#define SP_TRAFFIC_H

#include "model/stash.h"
#include "policies/plan.h"

/*
 * Walks the actions of a step of a verified plan and keeps plan->order. 0; -ENOMEM; or -EINVAL with the
 * reason in why[n]: a tensor is received before it was sent, sent and never received, or replicas are summed
 * in different orders.
 */
int sp_plan_check_traffic(struct sp_plan *plan, char *why, size_t n);

/* Payload that each stage (of the first pipeline, if several share the step) sends in one step, with a process a stage, by who
 * receives it: bytes[stages][stages]. Of a collective every other member receives as much; bytes[s][s] is what the devices of a
 * stage, or its pipelines, send each other. 0 or -ENOMEM. */
int sp_plan_bytes_by_link(const struct sp_plan *plan, const struct sp_shape *shape,
                          enum sp_recompute recompute, int every, int64_t *bytes);

#endif
