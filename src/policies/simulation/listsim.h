/* The list simulation: when every op runs if nothing but its stage and what it waits for holds it up. */
#ifndef SP_LISTSIM_H
#define SP_LISTSIM_H

#include "policies/simulation/times.h"

/* How messages travel in the list simulation. */
enum sp_channel {
    SP_UNBOUNDED,  /* delivered as soon as sent */
    SP_FIFO,       /* per pair of stages and direction of pass, consumed in the order sent */
    SP_RENDEZVOUS, /* one message a channel: the sender's next waits until it was taken */
    SP_PAIRED, /* unbounded, and overlapped ops start and end together, as the graph runs them */
    SP_RUN     /* the same with what an op waits for in a run (sp_run_deps) */
};

/*
 * Plays the programs: every op starts as soon as the one before it on its stage ended and all it
 * waits for is there. 0; or -EDEADLK with the blocked ops of every stage written to why[n];
 * -EINVAL if an op is not of the family; -ENOMEM. `times` is set only on success. O(ops).
 */
int sp_listsim(const struct sp_plan *plan, const struct sp_costs *costs, enum sp_channel channel,
               struct sp_times *times, char *why, size_t n);
/*
 * How many messages, sent and not yet taken, a channel must be able to hold for the programs to
 * come to their end; a channel is a pair of stages and direction of pass, a sender waits while it
 * is full, overlapped ops are one unit. *buffers is 0 if one is enough: a sender that blocks until
 * its last message was taken would do (SP_RENDEZVOUS). Otherwise it is the smallest number, 2 or
 * more: sends must be buffered. That is no fault: those of the engine never block a worker, and
 * published orders (breadth-first, interleaved) need it. 0, or what sp_listsim returns. O(ops).
 */
int sp_listsim_buffers(const struct sp_plan *plan, int *buffers);

#endif
