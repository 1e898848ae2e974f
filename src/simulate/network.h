/*
 * The transport of simulated runs (transport/transport.h): every member of a stage is a process of its own to
 * its graph, and all are in this one. A send and its receive meet by their tag; when the buffers of both are
 * ready, SimGrid carries the bytes between the hosts of the two. Nothing is copied.
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

/* Before the first message, between so many ranks; `members` that follow each other share a stage. 0 or -ENOMEM.
 * Simulated times are `stretch` times as long. */
int sp_sim_network_create(const struct sp_sim_machine *m, int ranks, int members, double stretch);
void sp_sim_network_destroy(void);

/* The process whose graph is submitted from here on. */
void sp_sim_network_act_as(int rank);

/* Messages that nobody received, or whose sender never came. */
long sp_sim_network_unmatched(void);

/* Those that arrived so far, in that order. */
const struct sp_carried *sp_sim_network_carried(long *n);

#endif
