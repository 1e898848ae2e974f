#include "policies/simulation/times.h"
#include "policies/simulation/costs.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

int sp_times_create(const struct sp_plan *plan, struct sp_times *t)
{
    size_t p = (size_t)plan->layout.stages, ops = (size_t)sp_plan_ops(plan), at = 0;
    double *block = calloc(2 * ops + 3 * p, sizeof *block);

    *t = (struct sp_times){.start = calloc(2 * p, sizeof *t->start),
                           .peak_live = calloc(p, sizeof *t->peak_live)};
    if (!block || !t->start || !t->peak_live) {
        free(block);
        free(t->start);
        free(t->peak_live);
        *t = (struct sp_times){0};
        return -ENOMEM;
    }
    /* one block: starts, ends, then the figures of the stages */
    t->end = t->start + p;
    for (size_t s = 0; s < p; s++) {
        t->start[s] = block + at;
        t->end[s] = block + ops + at;
        at += (size_t)plan->programs[s].n;
    }
    t->span = block + 2 * ops;
    t->idle = t->span + p;
    t->busy = t->idle + p;
    return 0;
}

void sp_times_destroy(struct sp_times *t)
{
    if (t->start)
        free(t->start[0]);
    free(t->start);
    free(t->peak_live);
    *t = (struct sp_times){0};
}

double sp_times_of_unit(const struct sp_plan *plan, const struct sp_costs *costs,
                        struct sp_times *t, int stage, int k, int ops, double start)
{
    const struct sp_op *op = &plan->programs[stage].ops[k];
    double end = start;

    for (int i = 0; i < ops; i++)
        end += sp_op_cost(plan, costs, stage, op + i);
    for (int i = 0; i < ops; i++) {
        double part = !costs->part_by_op
                          ? 1
                          : costs->part_by_op[plan->family->id(&plan->layout, stage, op + i)];

        t->start[stage][k + i] = start;
        t->end[stage][k + i] = part < 1 ? start + part * (end - start) : end;
    }
    return end;
}

double sp_activation_of_op(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    double size = plan->family->size ? plan->family->size(&plan->layout, op) : 1;
    int id = plan->deferred ? plan->family->id(&plan->layout, stage, op) : -1;

    if (op->part == SP_HEAD)
        return 0;
    switch (op->pass) {
    case SP_F:
        return size;
    case SP_B:
        return id >= 0 && plan->deferred[id] ? 0 : -size;
    case SP_W:
        return -size;
    }
    return 0;
}

/* The largest number of activations alive at once on a stage. */
static int peak_live(const struct sp_plan *plan, int stage)
{
    const struct sp_program *prog = &plan->programs[stage];
    double live = 0, peak = 0;

    for (int k = 0; k < prog->n; k++) {
        live += sp_activation_of_op(plan, stage, &prog->ops[k]);
        peak = fmax(peak, live);
    }
    return (int)ceil(peak - 1e-6);
}

void sp_times_summarize(const struct sp_plan *plan, const struct sp_costs *costs,
                        struct sp_times *t)
{
    int p = plan->layout.stages;
    double idle = 0;

    for (int s = 0; s < p; s++) {
        double end = 0;
        int n = plan->programs[s].n;

        for (int k = 0; k < n; k++) {
            t->busy[s] += sp_op_cost(plan, costs, s, &plan->programs[s].ops[k]);
            end = fmax(end, t->end[s][k]);
        }
        t->span[s] = n > 0 ? end - t->start[s][0] : 0;
        t->makespan = fmax(t->makespan, end);
        t->peak_live[s] = peak_live(plan, s);
    }
    for (int s = 0; s < p; s++) {
        double free = t->makespan - t->busy[s];

        t->idle[s] = free > 1e-12 * t->makespan ? free : 0; /* less is rounding */
        idle += t->idle[s];
    }
    t->bubble_ratio = t->makespan > 0 ? idle / (t->makespan * p) : 0;
}

/* The layout's memory counts micro-batches of a whole stage; an activation is a part of one. */
int sp_times_beyond_memory(const struct sp_plan *plan, const struct sp_times *t, double *held)
{
    const struct sp_layout *lay = &plan->layout;
    double part = sp_activation_share(plan->family, lay);

    for (int s = 0; lay->memory > 0 && s < lay->stages; s++) {
        *held = t->peak_live[s] * part;
        if (*held > lay->memory * (1 + 1e-9))
            return s;
    }
    return -1;
}
