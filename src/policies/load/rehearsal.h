/* Tries a call of code that may be wrong in a process of its own first, so that its effects stay
 * there. */
#ifndef SP_REHEARSAL_H
#define SP_REHEARSAL_H

/* Causes that end a call, besides signals; SIGALRM: it still ran after its time. */
enum { SP_CALL_FULL = 1000 /* a program takes no more ops */, SP_CALL_EXIT /* of the process */ };

/* Calls fn(arg) in a copy of this process: its changes to memory are not seen here. Its output is
 * printed only if it goes wrong. Returns 0 if it came back, or if no process could be made for it;
 * otherwise a cause, and sets *ops for SP_CALL_FULL. */
int sp_rehearse(void (*fn)(void *arg), void *arg, int seconds, int *ops);

/* Code that fn calls uses these in the copy: they end it with SP_CALL_FULL or _EXIT. Elsewhere they
 * do nothing. */
void sp_rehearsal_full(int ops);
void sp_rehearsal_exits(void);

#endif
