/* A thread that ends a stalled run, saying which op each local stage waits for. */
#ifndef SP_WATCHDOG_H
#define SP_WATCHDOG_H

#include "graphs/graph.h"

struct sp_watchdog;

/* NULL if no thread could be started: the run goes on without. */
struct sp_watchdog *sp_watchdog_start(const struct sp_graph *g, double seconds);
void sp_watchdog_stop(struct sp_watchdog *dog);

#endif
