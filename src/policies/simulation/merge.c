/*
 * One order for the ops of all stages, by start time. Ops that take no time start together with
 * their producers, so the times alone do not order them: a heap holds the next ops whose producers
 * were all merged, and gives the earliest.
 */
#include "policies/simulation/index.h"
#include "policies/simulation/waiters.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/heap.h"
#include "policies/simulation/merge.h"
#include "policies/simulation/times.h"
#include <stdlib.h>
#include <string.h>

struct merge {
    const struct sp_plan *plan;
    const struct sp_times *times;
    struct sp_index ix;
    struct sp_waiters waiters;
    int *pc;             /* [stages] next op */
    struct sp_heap heap; /* stages whose next op may go, earliest first */
};

static bool before(const void *arg, int a, int b)
{
    const struct merge *m = arg;
    double ta = m->times->start[a][m->pc[a]], tb = m->times->start[b][m->pc[b]];

    return ta != tb ? ta < tb : a < b;
}

/* How many ops go next together: two that overlap are one unit. */
static int unit(const struct merge *m, int stage)
{
    const struct sp_program *prog = &m->plan->programs[stage];
    int k = m->pc[stage];

    return k + 1 < prog->n && prog->ops[k].overlap ? 2 : 1;
}

/* Offers the next op of a stage to the heap, or makes the stage wait for a producer of it. */
static void offer(struct merge *m, int stage)
{
    const struct sp_family *family = m->plan->family;
    const struct sp_program *prog = &m->plan->programs[stage];
    struct sp_dep deps[2 * SP_MAX_DEPS];
    int n, at = m->pc[stage];

    if (at == prog->n)
        return;
    n = family->deps(&m->plan->layout, stage, &prog->ops[at], deps);
    if (unit(m, stage) == 2)
        n += family->deps(&m->plan->layout, stage, &prog->ops[at + 1], deps + n);
    for (int i = 0; i < n; i++) {
        int k = sp_index_place(&m->ix, m->plan, &deps[i]);

        if (k < 0)
            return;
        if (k >= m->pc[deps[i].stage]) {
            sp_waiters_add(&m->waiters, family->id(&m->plan->layout, deps[i].stage, &deps[i].op),
                           stage);
            return;
        }
    }
    sp_heap_push(&m->heap, stage, before, m);
}

static int merge(struct merge *m, struct sp_placed *out)
{
    const struct sp_layout *lay = &m->plan->layout;
    int done = 0;

    for (int s = 0; s < lay->stages; s++)
        offer(m, s);
    while (m->heap.n > 0) {
        int s = sp_heap_pop(&m->heap, before, m), first = m->pc[s], ops = unit(m, s), waiting;

        m->pc[s] += ops;
        for (int k = first; k < first + ops; k++)
            out[done++] =
                (struct sp_placed){.stage = s, .index = k, .start = m->times->start[s][k]};
        for (int k = first; k < first + ops; k++) {
            int id = m->plan->family->id(lay, s, &m->plan->programs[s].ops[k]);

            while ((waiting = sp_waiters_take(&m->waiters, id)) >= 0)
                offer(m, waiting);
        }
        offer(m, s);
    }
    return done;
}

struct sp_placed *sp_merge(const struct sp_plan *plan, const struct sp_times *times, int *n)
{
    size_t p = (size_t)plan->layout.stages;
    int ops = sp_plan_ops(plan), stage, index;
    struct merge m = {.plan = plan, .times = times};
    struct sp_placed *out = malloc((size_t)(ops > 0 ? ops : 1) * sizeof *out);
    int done = -1;

    m.pc = calloc(p, sizeof *m.pc);
    m.heap.item = calloc(p, sizeof *m.heap.item);
    if (out && m.pc && m.heap.item && !sp_index_create(plan, &m.ix, &stage, &index) &&
        !sp_waiters_create(m.ix.ids, plan->layout.stages, &m.waiters))
        done = merge(&m, out);
    sp_waiters_destroy(&m.waiters);
    sp_index_destroy(&m.ix);
    free(m.pc);
    free(m.heap.item);
    if (done != ops) {
        free(out);
        return NULL;
    }
    *n = ops;
    return out;
}

struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n)
{
    struct sp_placed *order;
    struct sp_times times;
    char why[64];

    *n = sp_plan_ops(plan);
    if (plan->order) {
        order = malloc((size_t)(*n + 1) * sizeof *order);
        if (order)
            memcpy(order, plan->order, (size_t)*n * sizeof *order);
        return order;
    }
    if (sp_listsim(plan, &sp_costs_unit, SP_PAIRED, &times, why, sizeof why))
        return NULL;
    for (int s = 0; plan->family->lowers->turn && s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++)
            times.start[s][k] =
                plan->family->lowers->turn(&plan->layout, s, &plan->programs[s].ops[k]);
    order = sp_merge(plan, &times, n);
    sp_times_destroy(&times);
    return order;
}
