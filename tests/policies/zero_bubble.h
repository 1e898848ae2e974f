/* Shared by the tests of zb1p and zb2p: makes and plays their plans. */
#ifndef SP_TEST_ZERO_BUBBLE_H
#define SP_TEST_ZERO_BUBBLE_H

#include "reference.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <math.h>

static inline int integer(json_t *root, const char *key)
{
    json_t *v = json_object_get(root, key);

    assert_true(json_is_integer(v));
    return (int)json_integer_value(v);
}

struct figures {
    double makespan, span;
    int peak;
};

static inline struct figures simulate(const struct sp_plan *plan, const struct sp_costs *costs)
{
    struct figures f = {0};
    char why[256] = "";
    struct sp_times t;

    if (sp_listsim(plan, costs, SP_UNBOUNDED, &t, why, sizeof why))
        fail_msg("%s", why);
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
    if (sp_plan_create(schedule, &lay, &plan))
        fail_msg("%s p=%d m=%d v=%d is refused", schedule, lay.stages, lay.micro_batches,
                 lay.chunks);
    f = simulate(&plan, costs);
    if (formula)
        *formula = plan.def->makespan(&plan.layout, costs->f, costs->b, costs->w);
    sp_plan_destroy(&plan);
    return f;
}

#endif
