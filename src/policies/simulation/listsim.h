/* The list simulation: when every op runs if only its stage and its inputs delay it. */
#ifndef SP_LISTSIM_H
#define SP_LISTSIM_H

#include "policies/simulation/times.h"

/* How messages travel in the list simulation. */
enum sp_channel {
    SP_UNBOUNDED,  /* delivered as soon as sent */
    SP_FIFO,       /* per pair of stages and direction of pass, consumed in the order sent */
    SP_RENDEZVOUS, /* one message a channel: the sender's next waits until it was taken */
    SP_PAIRED, /* unbounded, and overlapped ops start and end together, as the graph runs them */
    SP_RUN     /* the same, with the dependencies of a run (sp_run_deps) */
};

/*
 * Plays the programs: every op starts as soon as the one before it on its stage has ended and all
 * its inputs are there. 0; or -EDEADLK with the blocked ops of every stage written to why[n];
 * -EINVAL if an op is not of the family; -ENOMEM. `times` is set only on success. O(ops).
 */
int sp_listsim(const struct sp_plan *plan, const struct sp_costs *costs, enum sp_channel channel,
               struct sp_times *times, char *why, size_t n);
/*
 * Computes how many messages, sent and not yet taken, a channel must hold for the programs to end.
 * A channel is a pair of stages and direction of pass. A sender waits while it is full. Overlapped
 * ops are one unit. *buffers is 0 if one message is enough: then a sender may block until its last
 * message was taken (SP_RENDEZVOUS). Otherwise it is the smallest number, 2 or more, and sends must
 * be buffered. That is no fault: sends of the engine never block a worker, and published orders
 * (breadth-first, interleaved) need it. 0, or an error as of sp_listsim. O(ops).
 */
int sp_listsim_buffers(const struct sp_plan *plan, int *buffers);

struct sp_placed {
    int stage, index; /* in the program of the stage */
};

/*
 * All ops of all stages in the order in which they start at these costs, then by stage; or in the
 * turns of the family. The order is topological even if ops take no time. The caller frees it;
 * NULL: no memory, or the programs deadlock.
 */
struct sp_placed *sp_order_at_costs(const struct sp_plan *plan, const struct sp_costs *costs,
                                    int *n);

/* The order of submission: the one that the plan keeps, or else the one at equal costs of all
 * passes. Returns like sp_order_at_costs. */
struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n);

#endif
