/* Layouts of a search that are tried, on all cores. Pure. */
#ifndef SP_TRIALS_H
#define SP_TRIALS_H

#include "plan/search/found.h"

struct sp_order_book;

struct sp_candidate {
    struct sp_found f;
    double beat_ms; /* a step that is sure to take longer is not worth the rest of the trial */
    int line;       /* what it was tried for (search.c) */
    int err;        /* 0; what sp_trial says; or -EINTR: the search was stopped before */
    bool expanded;  /* its neighbours were added */
};

struct sp_trials {
    struct sp_candidate *candidate; /* [n] in the order in which they were added */
    int n, room;
    int done;                   /* the first ones, tried already */
    struct sp_order_book *book; /* of orders found so far; NULL: none is kept */
    bool lost;                  /* there was no memory for one */
    bool stopped;               /* want->go_on said so: nothing is tried any more */
};

void sp_trials_add(struct sp_trials *t, const struct sp_candidate *candidate);

/* Tries those that were not yet. What comes out does not depend on how many threads do it. `best`: of all so far, for
 * want->go_on; NULL: none. */
void sp_trials_run(const struct sp_search *want, struct sp_trials *t, const struct sp_found *best);

void sp_trials_destroy(struct sp_trials *t);

#endif
