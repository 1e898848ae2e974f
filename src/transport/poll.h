/*
 * How long the thread for MPI messages rests after a poll that found nothing.
 *
 * Nobody is told when a message moves: MPI has to be asked. A thread with a core to itself may ask
 * often. If it shares the core with a worker, each waking takes that core for some 25 us on a
 * virtual machine (timer, two switches), however little it does: with rests of 20 us, ops took 1.4
 * times as long. So the thread asks often while a worker of the process has nothing to run, whose
 * core it can use, and seldom while all of them compute. A message that moves in pieces must not
 * wait for long between them: after anything moved, rests begin short and grow.
 */
#ifndef SP_POLL_H
#define SP_POLL_H

#include <pthread.h>
#include <stdbool.h>

/*
 * True if a poll that ended no message took so long that it must have moved a piece of one: it
 * copies 32 KiB or more, in 3 us and up. A poll that finds nothing takes as long after a rest in
 * which others used the caches, so *quiet_us follows the time of the quickest of those; the caller
 * sets it to 0 at first.
 */
bool sp_poll_moved(double took_us, double rested_us, double *quiet_us);

/* SP_POLL_US in nanoseconds, the length of every rest; 0: no rests; negative: the variable is
 * not set. */
long sp_poll_given_ns(void);

/* SP_POLL_US, or 20 us if it is not set: the rest of a thread with a core to itself. */
long sp_poll_pause_ns(void);

/* The length of the rest, in nanoseconds. `since_us`: time since something moved; `awaited`: a
 * worker has nothing to run; `crowded`: no core is left for messages. */
long sp_poll_rest_ns(double since_us, bool awaited, bool crowded);

/* Waits for `wake`, whose clock is CLOCK_MONOTONIC, at most so long. The caller has the mutex. */
void sp_poll_wait(pthread_cond_t *wake, pthread_mutex_t *mutex, long ns);

/* CPU time that a thread has taken so far, in microseconds; 0: not known. */
double sp_poll_cpu_us(pthread_t thread);

#endif
