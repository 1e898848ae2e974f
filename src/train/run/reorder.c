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
#include <stdlib.h>
#include <string.h>

/* Steps that warm up caches and buffers before costs are measured. */
enum { WARM_UP = 3 };

bool sp_train_reorders(const struct sp_trainer *t)
{
    return t->done == t->first_step + WARM_UP && sp_layout_flag(&t->plan.layout, "auto");
}

/* Packs the programs of a plan into an array of integers: the number of ops of every stage, then
 * the ops. */
static int *pack(const struct sp_plan *plan, size_t *n)
{
    int *out, *at;

    *n = (size_t)plan->layout.stages + 4 * (size_t)sp_plan_ops(plan);
    out = calloc(*n, sizeof *out);
    at = out;
    for (int s = 0; out && s < plan->layout.stages; s++) {
        *at++ = plan->programs[s].n;
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];

            *at++ = op->pass << 16 | op->part << 8 | op->overlap;
            *at++ = op->mb;
            *at++ = op->chunk;
            *at++ = op->slice;
        }
    }
    return out;
}

static void unpack(const int *in, struct sp_plan *plan)
{
    for (int s = 0; s < plan->layout.stages; s++) {
        int n = *in++;

        plan->programs[s].n = 0;
        for (int k = 0; k < n; k++, in += 4)
            sp_program_add_op(&plan->programs[s],
                              (struct sp_op){.pass = (unsigned char)(in[0] >> 16),
                                             .part = (unsigned char)(in[0] >> 8),
                                             .overlap = (unsigned char)(in[0] & 1),
                                             .mb = in[1],
                                             .chunk = in[2],
                                             .slice = (unsigned short)in[3]});
    }
}

/* On rank 0: searches an order at the measured costs and packs it into *row; it is unchanged if
 * the new one is not better. */
static int search(struct sp_trainer *t, double comm_ms, int **row, size_t *n)
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
    *row = pack(after.makespan < before.makespan && sp_train_fits(t, &plan) ? &plan : &t->plan, n);
    err = *row ? 0 : sp_error(ENOMEM, "no memory for an order of %d ops", sp_plan_ops(&plan));
    sp_times_destroy(&after);
out_before:
    sp_times_destroy(&before);
out_plan:
    sp_plan_destroy(&plan);
out:
    sp_expected_costs_free(&costs);
    return err;
}

/* Gives all ranks the order that rank 0 found, in *row. An error ends all processes. */
static int find_order(struct sp_trainer *t, int **row)
{
    const struct sp_shape *sh = &t->graph.shape;
    size_t n = (size_t)sh->rows * (size_t)sh->model.hidden * sp_shape_elem(sh);
    double comm_ms = sp_profile_comm_us(&t->world, 1, n) / 1e3;
    int err = 0;

    if (t->world.rank == 0)
        err = search(t, comm_ms, row, &n);
    if (err)
        return err;
    sp_transport_share(&n, sizeof n);
    if (t->world.rank != 0)
        *row = malloc(n * sizeof **row);
    if (!*row)
        return sp_error(ENOMEM, "no memory for an order of %zu integers", n);
    sp_transport_share(*row, n * sizeof **row);
    return 0;
}

int sp_train_reorder(struct sp_trainer *t)
{
    char why[256] = "";
    int *row = NULL, err;

    sp_watchdog_begin(SP_PHASE_PREPARE, "searching for an order");
    err = find_order(t, &row);
    sp_watchdog_end();
    if (err)
        return err;
    unpack(row, &t->plan);
    free(row);
    err = sp_plan_index(&t->plan);
    err = err ? err : sp_plan_check_traffic(&t->plan, why, sizeof why);
    if (err)
        return sp_error(-err, "the order found cannot be taken over: %s", why);
    return sp_graph_reorder(&t->graph);
}
