#include "policies/simulation/waiters.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOT_WAITING (-2)

int sp_waiters_create(int events, int lanes, struct sp_waiters *w)
{
    int *first = malloc((size_t)(events > 0 ? events : 1) * sizeof *first);
    int *next = malloc((size_t)lanes * sizeof *next);

    if (!first || !next) {
        free(first);
        free(next);
        return -ENOMEM;
    }
    memset(first, -1, (size_t)events * sizeof *first);
    for (int l = 0; l < lanes; l++)
        next[l] = NOT_WAITING;
    w->first = first;
    w->next = next;
    return 0;
}

void sp_waiters_destroy(struct sp_waiters *w)
{
    free(w->first);
    free(w->next);
    *w = (struct sp_waiters){0};
}

void sp_waiters_add(struct sp_waiters *w, int event, int lane)
{
    if (w->next[lane] != NOT_WAITING)
        return;
    w->next[lane] = w->first[event];
    w->first[event] = lane;
}

int sp_waiters_take(struct sp_waiters *w, int event)
{
    int lane = w->first[event];

    if (lane >= 0) {
        w->first[event] = w->next[lane];
        w->next[lane] = NOT_WAITING;
    }
    return lane;
}
