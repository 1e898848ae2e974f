/* A call of code that may be wrong, tried in a process of its own first: whatever it does is done there. */
#ifndef SP_REHEARSAL_H
#define SP_REHEARSAL_H

/* How it ended. */
struct sp_rehearsal {
    enum {
        SP_REHEARSED, /* it came back; or no process could be made for it */
        SP_REHEARSAL_FULL,
        SP_REHEARSAL_LATE,   /* after `seconds` it was still there */
        SP_REHEARSAL_SIGNAL, /* ended by signal `number` */
        SP_REHEARSAL_EXIT    /* it ended the process */
    } end;
    int number; /* signal, or the ops of the program that is full */
};

/* Calls fn(arg) in a copy of this process: nothing of what it does to memory is seen here. What it prints is
 * printed where it goes wrong. */
struct sp_rehearsal sp_rehearse(void (*fn)(void *arg), void *arg, int seconds);

/* Called in the copy, by what fn calls: they end it as SP_REHEARSAL_FULL or _EXIT. They do nothing elsewhere. */
void sp_rehearsal_full(int ops);
void sp_rehearsal_exits(void);

#endif
