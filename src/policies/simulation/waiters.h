/* Lists of lanes (stages, workers) by the event each waits for; a lane waits for one at a time. */
#ifndef SP_WAITERS_H
#define SP_WAITERS_H

struct sp_waiters {
    int *first; /* [events] lane, -1: none */
    int *next;  /* [lanes] -1: last of its list, -2: not waiting */
};

int sp_waiters_create(int events, int lanes, struct sp_waiters *w); /* 0 or -ENOMEM */
void sp_waiters_destroy(struct sp_waiters *w);
/* Does nothing if the lane waits already: the event that it waits for is then still to come. */
void sp_waiters_add(struct sp_waiters *w, int event, int lane);
/* Takes one of the lanes that wait for the event; -1: none left. */
int sp_waiters_take(struct sp_waiters *w, int event);

#endif
