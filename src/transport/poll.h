/* How long a polling progress thread rests after an unsuccessful test. */
#ifndef SP_POLL_H
#define SP_POLL_H

/* Nanoseconds, 0: not at all. Referenced by the transport, so that a static link keeps poll.c. */
long sp_poll_pause_ns(void);

/* CPU time that the thread which tests for messages has taken so far, in microseconds. */
double sp_poll_cpu_us(void);

/* That thread has ended. */
void sp_poll_forget(void);

#endif
