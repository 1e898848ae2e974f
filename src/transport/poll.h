/*
 * How long the thread for MPI messages rests after a poll that found nothing.
 *
 * Nobody is told when a message moves: MPI wants to be asked. Where the thread has a core to itself it may
 * ask often; where it shares one with a worker, each waking takes the worker's core for some 25 us on a
 * virtual machine (timer, two switches), however little is done: at a rest of 20 us ops took 1.4 times as
 * long. So it asks often while a worker of the process has nothing to run, whose core that is then, and
 * seldom while all of them compute. What is on its way in pieces still moves: after anything moved, rests
 * begin short and grow.
 */
#ifndef SP_POLL_H
#define SP_POLL_H

#include <stdbool.h>

/*
 * Whether a poll that ended no message and took so long has moved a piece of one: that is a copy of 32 KiB or more,
 * 3 us and up. So are some polls that find nothing, after a rest in which others had the caches: *quiet_us follows
 * what the quickest of those take; 0 at first.
 */
bool sp_poll_moved(double took_us, double rested_us, double *quiet_us);

/* SP_POLL_US, in nanoseconds: rests are as long, 0: there are none; negative where it is not set. */
long sp_poll_given_ns(void);

/* As long as that, or 20 us: for a thread with a core to itself. */
long sp_poll_pause_ns(void);

/* The rest, in nanoseconds: `since_us` after something moved; `awaited`: a worker has nothing to run;
 * `crowded`: no core is left for messages. */
long sp_poll_rest_ns(double since_us, bool awaited, bool crowded);

#endif
