/* Shared by the tests of zb1p and zb2p: makes and plays their plans. */
#ifndef SP_TEST_ZERO_BUBBLE_H
#define SP_TEST_ZERO_BUBBLE_H

#include "policies/play.h"
#include "policies/reference.h"

struct figures {
    double makespan, span;
    int peak;
};

static inline struct figures simulate(const struct sp_plan *plan, const struct sp_costs *costs)
{
    struct figures f = {0};
    struct sp_times t;

    play_plan(plan, costs, SP_UNBOUNDED, &t);
    f.makespan = t.makespan;
    for (int s = 0; s < plan->layout.stages; s++) {
        f.span = fmax(f.span, t.span[s]);
        f.peak = t.peak_live[s] > f.peak ? t.peak_live[s] : f.peak;
    }
    sp_times_destroy(&t);
    return f;
}

/* Makes a plan, plays it and frees it. */
static inline struct figures measure(const char *schedule, struct sp_layout lay,
                                     const struct sp_costs *costs, double *formula)
{
    struct sp_plan plan;
    struct figures f;

    lay.costs = costs;
    make_plan_of(schedule, lay, &plan);
    f = simulate(&plan, costs);
    if (formula)
        *formula = formula_of(&plan, costs);
    sp_plan_destroy(&plan);
    return f;
}

#endif
