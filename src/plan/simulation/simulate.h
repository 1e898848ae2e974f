/*
 * A step played on what it runs on: every stage computes its program in order, and messages take turns on
 * the ports that they leave and arrive by. Pure; the list simulation (policies/simulation/listsim.h) is
 * what orders are made and checked with.
 */
#ifndef SP_SIMULATE_H
#define SP_SIMULATE_H

#include "plan/simulation/ready.h"
#include "plan/simulation/step_messages.h"
#include "policies/simulation/times.h"

/*
 * How a message travels: it has two ports for `busy`, and arrives `delay` later. Either a port carries one
 * message at a time, in the order in which they were ready (of those ready together, that of the lower stage
 * first), and a message waits until both are free; or messages share ports (flows.h).
 */
struct sp_route {
    int out, in; /* ports; both -1: none is needed */
    double busy, delay;
};

struct sp_network {
    int ports;
    bool flows; /* messages share ports */
    struct sp_route (*route)(const void *arg, const struct sp_step_message *m);
    /* Whether both stages have it in one memory: gradients are then there layer by layer. NULL: never. */
    bool (*is_shared)(const void *arg, const struct sp_step_message *m);
    const void *arg;
};

/* When messages were ready, were sent (had their ports) and arrived. */
struct sp_message_times {
    double *sent, *arrived; /* [messages] */
    double *stalled;        /* [stages] what ops waited for EVICT and FETCH alone */
    double *ready;          /* [messages] */
    double *stall;          /* [ops] part of `stalled`, by the numbers of sp_step_messages */
};

/*
 * Every op starts as soon as the one before it on its stage ended and its messages are there; overlapped ops
 * start and end together. An op that would wait in its middle for what it evicts or fetches starts later by as
 * much: it ends at the same time. worker[stages]: stages of one number take turns, in the order of submission; NULL:
 * each has its own. Costs as sp_op_cost has them. 0, -ENOMEM, or -EDEADLK: the plan is not a verified one.
 * `times` and `when` (NULL: not wanted) are set on success; times->messages is that of all messages,
 * collectives apart.
 */
int sp_simulate(const struct sp_plan *plan, const struct sp_costs *costs,
                const struct sp_step_messages *messages, const struct sp_network *network,
                const int *worker, struct sp_times *times, struct sp_message_times *when);
void sp_message_times_destroy(struct sp_message_times *when);

/* sp_simulate with stages that overtake. The programs, and with them the messages and the times, come in the order in
 * which stages began their ops. 0, -ENOMEM, or -EDEADLK. */
int sp_simulate_ready(const struct sp_ready_request *request, struct sp_times *times,
                      struct sp_message_times *when);

/*
 * Unit costs and their like: every message occupies a port out of its stage and one into the other for
 * costs->wire times its part of a micro-batch, and is costs->comm on its way.
 */
struct sp_unit_network {
    const struct sp_plan *plan;
    const struct sp_costs *costs;
};
struct sp_network sp_network_of_costs(const struct sp_unit_network *unit);

#endif
