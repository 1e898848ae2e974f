/*
 * A machine whose rates are those that a run measured. Pure.
 *
 * An op's time is a sum over kinds of calls: products, attention in either direction, passes over memory. Of the ops of a
 * run in one layout only sums are known, so that a kind has a factor of its own as far as ops differ in how much of it they
 * have: forwards from backwards, the first and the last stage from others, parts of layers, the update. What they leave
 * open is decided by the factor of all ops together: the factors f minimise
 *
 *   sum over groups of ops   mean of (sum_k f_k predicted_k / measured - 1)^2   +   PULL sum_k (f_k / f_all - 1)^2
 *
 * A group is all ops of a pass, or the updates. The cost of a task is apart: it is the time between the tasks of an op,
 * in which nobody else was waited for.
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

/* What a run measured, in milliseconds, of ops by the number that their family gives them; 0: not known. */
struct sp_fit_measured {
    const double *busy;   /* tasks of an op */
    const double *gaps;   /* between them */
    const double *update; /* [stages] norm and optimizer */
    bool counts_gaps;     /* each stage has a worker of its own: nothing else runs in them */
};

struct sp_fit {
    double factor[SP_FIT_KINDS]; /* by which calls take longer than the machine says */
    double launch;               /* the same of a task; 1: not known */
};

/* Fits to a machine's prediction of the plan, at `terms`. 0; -ENOMEM; -EINVAL: nothing was measured. */
int sp_rates_fit(const struct sp_plan *plan, const struct sp_shape *sh,
                 const struct sp_op_terms *terms, const struct sp_fit_measured *measured,
                 struct sp_fit *fit);

/* Makes all figures of a machine, of whatever number of threads, longer by the factors. */
void sp_rates_apply(const struct sp_fit *fit, struct sp_machine *machine);

#endif
