#include "graphs/report/times.h"
#include <math.h>

int sp_report_units(const struct sp_graph *g, int stage)
{
    return g->cfg.evictions ? g->cfg.evictions[stage].n_units : 0;
}

/* The time when the last producer of an op on another stage ended. */
static double last_message(const struct sp_graph *g, const struct sp_step_report *r, int stage,
                           int index)
{
    const struct sp_plan *plan = g->cfg.plan;
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(plan, stage, &plan->programs[stage].ops[index], deps);
    double last = 0;

    for (int d = 0; d < n; d++)
        if (deps[d].stage != stage) {
            int at = sp_index_place(&g->places, plan, &deps[d]);

            const struct sp_op_record *from = &r->stages[deps[d].stage].ops[at];

            last = fmax(last, deps[d].beside ? from->start_us : from->end_us);
        }
    return last;
}

/* The first of the stages, consecutive ones, that share a worker with stage s. */
static int first_of_worker(const struct sp_graph *g, const struct sp_step_report *r, int s)
{
    while (s > 0 && sp_stage_rank(&g->place, s - 1) == sp_stage_rank(&g->place, s) &&
           r->stages[s - 1].worker == r->stages[s].worker)
        s--;
    return s;
}

/*
 * An op waits from the end of the previous op on its worker, of any stage and step, or from the
 * moment when it could have started, whichever is later.
 */
static void add_waits(const struct sp_graph *g, struct sp_step_report *r)
{
    for (int s = 0; s < g->place.stages; s++)
        r->stages[s].comm_wait_us = 0;
    for (int k = 0; k < g->lowering.n; k++) {
        int s = g->lowering.order[k].stage, i = g->lowering.order[k].index;
        const struct sp_op_record *op = &r->stages[s].ops[i];
        double *free_at = &g->free_at[first_of_worker(g, r, s)], ready = last_message(g, r, s, i);

        if (ready > 0 && op->start_us > fmax(ready, *free_at))
            r->stages[s].comm_wait_us += op->start_us - fmax(ready, *free_at);
        *free_at = fmax(*free_at, op->end_us); /* if two ops overlap, either may end last */
    }
}

/*
 * A stage is idle from the first op of all stages to the last one, unless it is busy. If steps
 * overlap, it counts from its own last op of the previous step to its own last op of this one: then
 * the times of all steps add up to that of the run.
 */
static void add_idle(struct sp_graph *g, struct sp_step_report *r, double first, double last)
{
    bool next_begun = g->turn != g->closing;

    for (int s = 0; s < g->place.stages; s++) {
        struct sp_stage_report *st = &r->stages[s];
        double from = g->begun_ahead ? g->ended[s] : first, own = 0;

        st->busy_us = st->core_wait_us = 0;
        for (int i = 0; i < st->n_ops; i++) {
            st->busy_us += st->ops[i].busy_us;
            st->core_wait_us += st->ops[i].core_wait_us;
            own = fmax(own, st->ops[i].end_us);
        }
        st->idle_us = fmax(0, (next_begun ? own : last) - from - st->busy_us);
        st->bubble_ratio =
            st->busy_us + st->idle_us > 0 ? st->idle_us / (st->busy_us + st->idle_us) : 0;
        g->ended[s] = own;
    }
    g->begun_ahead = next_begun;
}

/* Shifts a time; 0 means unknown and stays. */
static void shift(double *us, double first)
{
    if (*us > 0)
        *us -= first;
}

/* Makes all times of a stage relative to the first op. */
static void count_from(const struct sp_graph *g, int stage, double first, struct sp_stage_report *s)
{
    for (int i = 0; i < s->n_ops; i++) {
        s->ops[i].start_us -= first;
        s->ops[i].end_us -= first;
        shift(&s->ops[i].out_us, first);
        shift(&s->ops[i].arrived_us, first);
        shift(&s->ops[i].submitted_us, first);
        shift(&s->ops[i].ready_us, first);
    }
    for (int i = 0; i < s->n_messages; i++) {
        shift(&s->messages[i].ready_us, first);
        shift(&s->messages[i].begun_us, first);
        shift(&s->messages[i].ended_us, first);
    }
    for (int u = 0; u < 2 * sp_report_units(g, stage); u++)
        shift(&s->left_at_us[u], first);
}

void sp_report_add_times(struct sp_graph *g, struct sp_step_report *r)
{
    double first = INFINITY, last = 0;

    for (int s = 0; s < g->place.stages; s++)
        for (int i = 0; i < r->stages[s].n_ops; i++) {
            first = fmin(first, r->stages[s].ops[i].start_us);
            last = fmax(last, r->stages[s].ops[i].end_us);
        }
    r->span_us = last - first;
    add_waits(g, r);
    add_idle(g, r, first, last);
    for (int s = 0; s < g->place.stages; s++)
        count_from(g, s, first, &r->stages[s]);
}
