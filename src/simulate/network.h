/*
 * The transport of simulated runs (transport/transport.h). The graph of every member of a stage
 * takes that member for a process of its own, but all are in this process. A send and its receive
 * are matched by their tag. When the buffers of both are ready, SimGrid carries the bytes between
 * their hosts. Nothing is copied.
 */
#ifndef SP_SIMULATE_NETWORK_H
#define SP_SIMULATE_NETWORK_H

#include "simulate/machine.h"
#include <stdint.h>

/* One message that arrived; times in microseconds of the simulated clock. */
struct sp_carried {
    int from, to; /* ranks */
    double bytes, ready, arrived;
};

/* Call before the first message. `members` consecutive ranks share a stage. Simulated times are
 * `stretch` times as long as the machine's. 0 or -ENOMEM. */
int sp_sim_network_create(const struct sp_sim_machine *m, int ranks, int members, double stretch);
void sp_sim_network_destroy(void);

/* Sets the rank whose graph is submitted from here on. */
void sp_sim_network_act_as(int rank);

/* The number of messages submitted with one end only. */
long sp_sim_network_unmatched(void);

/* The messages that arrived so far, in the order of arrival; *n is their number. */
const struct sp_carried *sp_sim_network_carried(long *n);

#endif
