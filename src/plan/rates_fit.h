/*
 * Fits the rates of a machine to those that a run measured. Pure.
 *
 * An op's time is a sum over kinds of calls: products, attention in either direction, passes over
 * memory. A run in one layout tells only these sums, so the factor of a kind is determined as far
 * as ops contain different amounts of it: forwards and backwards, the first and the last stage and
 * others, parts of layers, the update. The rest is decided by the factor of all ops together: the
 * factors f minimise
 *
 *   sum over groups of ops   mean of (sum_k f_k predicted_k / measured - 1)^2
 *                            + PULL sum_k (f_k / f_all - 1)^2
 *
 * A group is all ops of a pass, or the updates. The cost of a task is fitted separately, to the
 * time between the tasks of an op in which the stage waited for nothing else.
 */
#ifndef SP_RATES_FIT_H
#define SP_RATES_FIT_H

#include "plan/cost/op_times.h"

enum sp_fit_kind {
    SP_FIT_PRODUCTS,
    SP_FIT_ATTENTION_FORWARD,
    SP_FIT_ATTENTION_BACKWARD,
    SP_FIT_MEMORY,
    SP_FIT_KINDS
};

/* Milliseconds that a run measured, by the ids that the family gives its ops; 0: not known. */
struct sp_fit_measured {
    const double *busy;   /* tasks of an op */
    const double *gaps;   /* between them */
    const double *update; /* [stages] norm and optimizer */
    bool counts_gaps;     /* each stage has its own worker: nothing else runs in the gaps */
};

struct sp_fit {
    double factor[SP_FIT_KINDS]; /* calls take so many times as long as the machine says */
    double launch;               /* the same for the overhead of a task; 1: not known */
};

/* Fits the prediction of the plan at `terms` to a run. 0; -ENOMEM; -EINVAL: nothing was
 * measured. */
int sp_rates_fit(const struct sp_plan *plan, const struct sp_shape *sh,
                 const struct sp_op_terms *terms, const struct sp_fit_measured *measured,
                 struct sp_fit *fit);

/* Slows all figures of a machine, for every number of threads, by the factors. */
void sp_rates_apply(const struct sp_fit *fit, struct sp_machine *machine);

#endif
