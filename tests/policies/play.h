/* Shared by the tests that play plans in the list simulation. */
#ifndef SP_TESTS_PLAY_H
#define SP_TESTS_PLAY_H

#include "policies/common.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <math.h>

/* A plan for the message of a failure. */
static inline const char *describe(const struct sp_plan *plan)
{
    static char text[160];
    const struct sp_layout *lay = &plan->layout;

    snprintf(text, sizeof text, "%s:%s p=%d m=%d v=%d n=%d L=%d",
             plan->def ? plan->def->name : plan->family->name, plan->options, lay->stages,
             lay->micro_batches, lay->chunks, lay->slices, lay->layers);
    return text;
}

/* Sets the times of a plan, which must come to its end. */
static inline void play_plan(const struct sp_plan *plan, const struct sp_costs *costs,
                             enum sp_channel channel, struct sp_times *t)
{
    char why[512] = "";

    if (sp_listsim(plan, costs, channel, t, why, sizeof why))
        fail_msg("%s: %s", describe(plan), why);
}

static inline double makespan_of(const struct sp_plan *plan, const struct sp_costs *costs,
                                 enum sp_channel channel)
{
    struct sp_times t;
    double makespan;

    play_plan(plan, costs, channel, &t);
    makespan = t.makespan;
    sp_times_destroy(&t);
    return makespan;
}

/* Makes a plan and plays it; `played_done` frees both. */
static inline void make_and_play(const char *schedule, struct sp_layout lay,
                                 const struct sp_costs *costs, struct sp_plan *plan,
                                 struct sp_times *t)
{
    make_plan_of(schedule, lay, plan);
    play_plan(plan, costs, SP_PAIRED, t);
}

static inline void played_done(struct sp_plan *plan, struct sp_times *t)
{
    sp_times_destroy(t);
    sp_plan_destroy(plan);
}

/* The closed form of a plan's makespan; negative: it has none. */
static inline double formula_of(const struct sp_plan *plan, const struct sp_costs *c)
{
    return plan->def->makespan(&plan->layout, c->f, c->b, c->w);
}

#endif
