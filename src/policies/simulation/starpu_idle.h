/* Workers that find nothing to run: they rest, until work comes, and who brings it may know of them
 * (starpipe/order.h). */
#ifndef SP_STARPU_IDLE_H
#define SP_STARPU_IDLE_H

#include <stdbool.h>

/* Before the workers run. */
void sp_idle_start(void);
/* Called by a worker after every look for a task; rests where it found none the last time either. */
void sp_idle_note(unsigned worker, bool found);
/* Called after something was filed for a worker. */
void sp_idle_wake(unsigned worker);

#endif
