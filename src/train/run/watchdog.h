/* A thread that ends a stalled run, saying which op each local stage waits for. */
#ifndef SP_WATCHDOG_H
#define SP_WATCHDOG_H

#include "graphs/graph.h"

struct sp_watchdog;

/*
 * Watches from here on: ends all processes with status 1 when nothing has moved here for `seconds`.
 * Time in which this process does not run (stopped, suspended, swapped out) does not count.
 * NULL if no thread could be started: the run goes on without.
 */
struct sp_watchdog *sp_watchdog_start(const struct sp_graph *g, double seconds);
/* `dog` may be NULL, here and below. */
void sp_watchdog_stop(struct sp_watchdog *dog);

/*
 * Between the two nothing need move here: a rank saves or samples, others wait for it. Pairs nest.
 * All ranks must leave such a phase together, or those that go on wait for one that is still in it.
 */
void sp_watchdog_pause(struct sp_watchdog *dog);
void sp_watchdog_resume(struct sp_watchdog *dog);

#endif
