/*
 * Some orders are searched for (zb1p:auto). The first ones are made for the machine's costs. After
 * a few steps rank 0 searches again with the costs that the run measured, and all processes
 * continue in the order it found. Chunks stay on their stages.
 */
#include "train/run/replan.h"
#include "plan/expected.h"
#include "plan/profile.h"
#include "policies/lowering/traffic.h"
#include "sp_error.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include "graphs/create.h"
#include "train/run/watchdog.h"
#include "train/start/memory.h"
#include "transport/transport.h"
#include <stdio.h>

/* Steps that warm up caches and buffers before costs are measured. */
enum { WARM_UP = 3 };

bool sp_train_reorders(const struct sp_trainer *t)
{
    return t->done == t->first_step + WARM_UP && sp_layout_flag(&t->plan.layout, "auto");
}

/* On rank 0: searches an order at the measured costs, and takes it over if it is better. */
static int search(struct sp_trainer *t, double comm_ms)
{
    struct sp_layout lay = t->plan.layout;
    struct sp_costs costs;
    struct sp_times before, after;
    struct sp_plan plan;
    char name[256], why[256];
    int err = sp_expected_costs(&t->plan, &t->report, &costs);

    if (err)
        return err;
    snprintf(name, sizeof name, "%s:%s", t->plan.def->name, t->plan.options);
    costs.comm = comm_ms;
    lay.costs = &costs;
    err = sp_plan_create(name, &lay, &plan);
    if (err)
        goto out;
    err = sp_listsim(&t->plan, &costs, SP_UNBOUNDED, &before, why, sizeof why);
    if (err)
        goto out_plan;
    err = sp_listsim(&plan, &costs, SP_UNBOUNDED, &after, why, sizeof why);
    if (err)
        goto out_before;
    sp_train_say(t,
                 "after step %d: %s searched at the costs measured: %.2f ms expected, %.2f before",
                 t->done, name, after.makespan, before.makespan);
    if (after.makespan < before.makespan && sp_train_fits(t, &plan)) {
        struct sp_program *old = t->plan.programs;

        t->plan.programs = plan.programs;
        plan.programs = old;
    }
    sp_times_destroy(&after);
out_before:
    sp_times_destroy(&before);
out_plan:
    sp_plan_destroy(&plan);
out:
    sp_expected_costs_free(&costs);
    return err;
}

/* Gives all ranks the programs of rank 0. */
static void share_order(struct sp_plan *plan)
{
    for (int s = 0; s < plan->layout.stages; s++) {
        struct sp_program *program = &plan->programs[s];
        int n = program->n;

        sp_transport_share(&n, sizeof n);
        while (program->n < n)
            sp_program_add_op(program, (struct sp_op){0});
        program->n = n;
        sp_transport_share(program->ops, (size_t)n * sizeof *program->ops);
    }
}

int sp_train_reorder(struct sp_trainer *t)
{
    const struct sp_shape *sh = &t->graph.shape;
    size_t bytes = (size_t)sh->rows * (size_t)sh->model.hidden * sp_shape_elem(sh);
    double comm_ms;
    char why[256] = "";
    int err = 0;

    sp_watchdog_begin(SP_PHASE_PREPARE, "searching for an order");
    comm_ms = sp_profile_comm_us(&t->world, 1, bytes) / 1e3;
    if (t->world.rank == 0)
        err = search(t, comm_ms);
    if (!err) /* an error ends all processes */
        share_order(&t->plan);
    sp_watchdog_end();
    if (err)
        return err;
    err = sp_plan_index(&t->plan);
    err = err ? err : sp_plan_check_traffic(&t->plan, why, sizeof why);
    if (err)
        return sp_error(-err, "the order found cannot be taken over: %s", why);
    return sp_graph_reorder(&t->graph);
}
