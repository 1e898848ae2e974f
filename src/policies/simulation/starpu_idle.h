/* Workers that find nothing to run rest until work comes; a callback tells others about them
 * (starpipe/order.h). */
#ifndef SP_STARPU_IDLE_H
#define SP_STARPU_IDLE_H

#include <stdbool.h>

/* Call before the workers run. */
void sp_idle_start(void);
/* A worker calls this after every look for a task. It rests if the worker found none the last time
 * either. */
void sp_idle_note(unsigned worker, bool found);
/* Call before the workers run: this one has work only now and then, so it rests whenever it is
 * idle, and is not counted among those that wait. -1: there is none. */
void sp_idle_aside(int worker);
/* Call after a task was filed for a worker. */
void sp_idle_wake(unsigned worker);
/* Under other policies, which do not call these: that many more workers, or fewer, run nothing. */
void sp_idle_count(int more);

#endif
