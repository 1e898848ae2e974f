/*
 * Plays a step on a network: every stage computes its program in order, and messages take turns on
 * the ports that they leave and arrive by. Pure; orders are made and checked with the list
 * simulation (policies/simulation/listsim.h).
 */
#ifndef SP_SIMULATE_H
#define SP_SIMULATE_H

#include "plan/simulation/ready.h"
#include "plan/simulation/step_messages.h"
#include "policies/simulation/times.h"

/*
 * How a message travels: it occupies two ports for `busy`, and arrives `delay` later. Either a port
 * carries one message at a time, in the order in which they were ready (of equal ones, that of the
 * lower stage first), and a message waits until both ports are free; or messages share ports
 * (flows.h).
 */
struct sp_route {
    int out, in; /* ports; both -1: it needs none */
    double busy, delay;
};

struct sp_network {
    int ports;
    bool flows; /* messages share ports */
    struct sp_route (*route)(const void *arg, const struct sp_step_message *m);
    /* True if both stages have the tensor in one memory: gradients then arrive layer by layer.
     * NULL: never. */
    bool (*is_shared)(const void *arg, const struct sp_step_message *m);
    const void *arg;
};

/* When messages were ready, were sent (got their ports) and arrived. */
struct sp_message_times {
    double *sent, *arrived; /* [messages] */
    double *stalled;        /* [stages] time that ops waited for EVICT and FETCH alone */
    double *ready;          /* [messages] */
    double *stall;          /* [ops] their parts of `stalled`, by the numbers of sp_step_messages */
};

/* A step to be simulated. */
struct sp_simulated_step {
    const struct sp_plan *plan;
    const struct sp_costs *costs; /* as sp_op_cost has them */
    const struct sp_step_messages *messages;
    const struct sp_network *network;
    const int *worker; /* [stages] stages with the same number take turns, in the order of
                        * submission; NULL: each has its own worker */
};

/*
 * Every op starts as soon as the op before it on its stage has ended and its messages have arrived;
 * overlapped ops start and end together. An op that would wait in its middle for an eviction or a
 * fetch starts later by as much, and ends at the same time. 0, -ENOMEM, or -EDEADLK: the plan has not been verified. `times` and `when` (NULL: not
 * wanted) are set on success; times->messages counts all messages except collectives.
 */
int sp_simulate(const struct sp_simulated_step *step, struct sp_times *times,
                struct sp_message_times *when);
void sp_message_times_destroy(struct sp_message_times *when);

/* sp_simulate with stages that let ops overtake. Programs, messages and times are reordered by the
 * starts of the ops. 0, -ENOMEM, or -EDEADLK. */
int sp_simulate_ready(const struct sp_ready_request *request, struct sp_times *times,
                      struct sp_message_times *when);

#endif
