/* Tries one layout of a search: makes its plan, counts its memory, predicts its step; and many
 * layouts on all cores. Pure. */
#ifndef SP_TRIAL_H
#define SP_TRIAL_H

#include "plan/search/found.h"
#include "policies/order_book.h"
#include <stddef.h>

/*
 * Predicts *f, whose schedule and sizes are given; sets recompute, offload and all figures. 0,
 * -ENOMEM, or, silently, -EINVAL if there is no such plan, or if its step is sure to take longer
 * than `beat_ms` (INFINITY: never). `book` holds orders found before, and gets those found here;
 * NULL: none. With f->whole it simulates all micro-batches, and also chooses recomputation layer by
 * layer if that is faster.
 */
int sp_trial(const struct sp_search *want, struct sp_order_book *book, double beat_ms,
             struct sp_found *f);

/*
 * Plans *f again in its modes and simulates all its micro-batches, of which there may be fewer now;
 * `look` receives the result. 0, -ENOMEM, -EINVAL as above, or the value that `look` returns.
 */
struct sp_prediction;
typedef int sp_trial_look(const struct sp_plan *plan, const struct sp_prediction *p, void *data);
int sp_trial_show(const struct sp_search *want, const struct sp_found *f, sp_trial_look *look,
                  void *data);

struct sp_candidate {
    struct sp_found f;
    double beat_ms; /* the trial stops if its step is sure to take longer */
    int line;       /* the line that proposed it (search.c) */
    int err;        /* 0; the error of sp_trial; or -EINTR: the search stopped first */
    bool expanded;  /* its neighbours have been added */
};

struct sp_trials {
    struct sp_candidate *candidate; /* [n] in the order in which they were added */
    int n;
    size_t room;
    int done;                   /* so many of the first have been tried */
    struct sp_order_book *book; /* of orders found so far; NULL: none is kept */
    bool lost;                  /* there was no memory for one */
    bool stopped;               /* want->go_on stopped the search: nothing more is tried */
};

void sp_trials_add(struct sp_trials *t, const struct sp_candidate *candidate);

/* Tries all candidates that have not been tried. The result does not depend on the number of
 * threads. best[n]: the best so far, for want->go_on. */
void sp_trials_run(const struct sp_search *want, struct sp_trials *t, const struct sp_found *best,
                   int n);

void sp_trials_destroy(struct sp_trials *t);

#endif
