/*
 * When a run counts as stalled: nothing moved for so long in which this process ran. Pure: who
 * watches says what time it is and how often something has moved, at ticks.
 */
#ifndef SP_STALL_H
#define SP_STALL_H

#include <stdbool.h>

struct sp_stall {
    double timeout_us, tick_us;
    double last_us;      /* time of the last tick */
    double still_us;     /* counted since something moved */
    unsigned long moves; /* at the last tick */
};

/* Starts to count. The caller ticks every tick_us from here on: a tenth of the timeout, at least
 * 10 ms and at most 1 s. */
void sp_stall_start(struct sp_stall *s, double timeout_us, double now_us, unsigned long moves);

/*
 * True when nothing has moved for the timeout. A tick that came far too late says that the process
 * was stopped, the machine suspended or its memory swapped out: what it waits for needs its time
 * anew. `paused`: nothing is expected to move, and time does not count.
 */
bool sp_stall_tick(struct sp_stall *s, double now_us, unsigned long moves, bool paused);

#endif
