/*
 * Tells when a run counts as stalled: nothing has moved for the timeout, in which this process ran.
 * Pure: at each tick the caller passes the time and how often something has moved.
 */
#ifndef SP_STALL_H
#define SP_STALL_H

#include <stdbool.h>

struct sp_stall {
    double timeout_us, tick_us;
    double last_us;      /* time of the last tick */
    double still_us;     /* counted time since something moved */
    unsigned long moves; /* as of the last tick */
};

/* Starts to count. The caller ticks every tick_us from here on: a tenth of the timeout, at least
 * 10 ms and at most 1 s. */
void sp_stall_start(struct sp_stall *s, double timeout_us, double now_us, unsigned long moves);

/*
 * True when nothing has moved for the timeout. A tick that comes far too late means that the
 * process was stopped, the machine suspended or its memory swapped out; then the others that it
 * waits for get the full timeout again. `paused`: nothing is expected to move, and the time does
 * not count.
 */
bool sp_stall_tick(struct sp_stall *s, double now_us, unsigned long moves, bool paused);

#endif
