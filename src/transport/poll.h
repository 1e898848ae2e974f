/* How long a polling progress thread rests after an unsuccessful test. */
#ifndef SP_POLL_H
#define SP_POLL_H

/* Nanoseconds, 0: not at all. Referenced by the transport, so that a static link keeps poll.c. */
long sp_poll_pause_ns(void);

#endif
