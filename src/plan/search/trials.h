/* Tries the layouts of a search on all cores. Pure. */
#ifndef SP_TRIALS_H
#define SP_TRIALS_H

#include "plan/search/found.h"

struct sp_order_book;

struct sp_candidate {
    struct sp_found f;
    double beat_ms; /* the trial stops if its step is sure to take longer */
    int line;       /* the line that proposed it (search.c) */
    int err;        /* 0; the error of sp_trial; or -EINTR: the search stopped first */
    bool expanded;  /* its neighbours have been added */
};

struct sp_trials {
    struct sp_candidate *candidate; /* [n] in the order in which they were added */
    int n, room;
    int done;                   /* so many of the first have been tried */
    struct sp_order_book *book; /* of orders found so far; NULL: none is kept */
    bool lost;                  /* there was no memory for one */
    bool stopped;               /* want->go_on stopped the search: nothing more is tried */
};

void sp_trials_add(struct sp_trials *t, const struct sp_candidate *candidate);

/* Tries all candidates that have not been tried. The result does not depend on the number of
 * threads. `best`: the best so far, for want->go_on; NULL: none. */
void sp_trials_run(const struct sp_search *want, struct sp_trials *t, const struct sp_found *best);

void sp_trials_destroy(struct sp_trials *t);

#endif
