/* Tries a call of code that may be wrong in a process of its own first, so that its effects stay
 * there. */
#ifndef SP_REHEARSAL_H
#define SP_REHEARSAL_H

/* How it ended. */
struct sp_rehearsal {
    enum {
        SP_REHEARSED, /* it came back; or no process could be made for it */
        SP_REHEARSAL_FULL,
        SP_REHEARSAL_LATE,   /* it still ran after `seconds` */
        SP_REHEARSAL_SIGNAL, /* ended by signal `number` */
        SP_REHEARSAL_EXIT    /* it ended the process */
    } end;
    int number; /* signal, or the ops of the program that is full */
};

/* Calls fn(arg) in a copy of this process: its changes to memory are not seen here. Its output is
 * printed only if it goes wrong. */
struct sp_rehearsal sp_rehearse(void (*fn)(void *arg), void *arg, int seconds);

/* Code that fn calls uses these in the copy: they end it as SP_REHEARSAL_FULL or _EXIT. Elsewhere
 * they do nothing. */
void sp_rehearsal_full(int ops);
void sp_rehearsal_exits(void);

#endif
