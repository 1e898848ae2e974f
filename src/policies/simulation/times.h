/* The times of a plan's ops, and figures derived from them. */
#ifndef SP_TIMES_H
#define SP_TIMES_H

#include "policies/plan.h"

/* Times of every op. */
struct sp_times {
    double **start, **end; /* [stage][index in the program] */
    double makespan;
    double *span;        /* per stage: last end - first start */
    double *idle, *busy; /* per stage: makespan - busy; sum of the costs */
    int *peak_live; /* per stage: (micro-batch, chunk, slice) activations alive at once, taken at
                     * F, released at W, or at B where there is no W */
    double bubble_ratio; /* sum of idle over stages * makespan */
    int messages;        /* tensors that cross between stages */
};

/* Allocates the times of every op, all 0. 0 or -ENOMEM. */
int sp_times_create(const struct sp_plan *plan, struct sp_times *t);

/* Writes the times of the `ops` ops of a stage from index k on, which run together. Returns their
 * end. */
double sp_times_of_unit(const struct sp_plan *plan, const struct sp_costs *costs,
                        struct sp_times *t, int stage, int k, int ops, double start);

/* Activations that an op adds to its stage's memory, or, if negative, releases; parts of an
 * activation as peak_live counts them. */
double sp_activation_of_op(const struct sp_plan *plan, int stage, const struct sp_op *op);

/* Computes makespan, span, idle, busy, peak_live and bubble_ratio from `start` and `end`. */
void sp_times_summarize(const struct sp_plan *plan, const struct sp_costs *costs,
                        struct sp_times *t);
void sp_times_destroy(struct sp_times *times);

/* The first stage that exceeds the layout's memory; *held is how many micro-batches' activations it
 * holds. -1: none. */
int sp_times_beyond_memory(const struct sp_plan *plan, const struct sp_times *t, double *held);

#endif
