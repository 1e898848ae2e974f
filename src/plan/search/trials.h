/* Layouts of a search that are tried, on all cores. Pure. */
#ifndef SP_TRIALS_H
#define SP_TRIALS_H

#include "plan/search/search.h"

struct sp_trials {
    struct sp_found *layout; /* [n] in the order in which they were added */
    int *err;                /* [done] of each: 0, or what sp_trial says */
    int n, room;
    int done;  /* the first ones, tried already */
    bool lost; /* there was no memory for one */
};

void sp_trials_add(struct sp_trials *t, const struct sp_found *layout);

/* Tries those that were not yet. What comes out does not depend on how many threads do it. */
void sp_trials_run(const struct sp_search *want, struct sp_trials *t);

void sp_trials_destroy(struct sp_trials *t);

#endif
