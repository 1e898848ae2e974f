/*
 * Tells the watchdog (train/run/watchdog.h) that this process moves: everything that takes long says so here,
 * from any thread. There is one such count for the process.
 */
#ifndef SP_ACTIVITY_H
#define SP_ACTIVITY_H

#include <sys/types.h>

/* Something moved: a task ended, a tensor or a piece of a file was read, written, sent; how often so far. */
void sp_activity_touch(void);
unsigned long sp_activity_touches(void);

/* The main thread waits for other processes: for rank `rank`, or any (SP_ANY_RANK). Pairs nest. */
enum { SP_NO_RANK = -2, SP_ANY_RANK = -1 };
void sp_activity_wait(int rank);
void sp_activity_waited(void);
/* Whom it waits for; SP_NO_RANK: it does not. */
int sp_activity_awaited(void);

/* An end was asked for, by what `by` names: "SIGTERM", sent by process `from`; 0: none. From a signal handler
 * too; the first counts. */
void sp_activity_ask_end(const char *by, pid_t from);
/* By what; NULL: not asked for. */
const char *sp_activity_end_asked(void);
pid_t sp_activity_end_asker(void);

#endif
