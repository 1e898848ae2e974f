/* A hint for orders from files and plugins in which stages are idle half of the time. */
#include "cli/show/show.h"
#include "policies/load/csv.h"
#include "policies/registry.h"
#include "policies/simulation/index.h"

/* A stage waits before op `index` of its program. */
struct wait {
    int stage, index;
    double time;
};

/* The longest wait of all stages, the first of equal ones. */
static struct wait longest_wait(const struct sp_plan *plan, const struct sp_times *t)
{
    struct wait longest = {0};

    for (int s = 0; s < plan->layout.stages; s++) {
        double ended = 0;

        for (int k = 0; k < plan->programs[s].n; k++) {
            double time = t->start[s][k] - ended;

            if (time > longest.time * (1 + 1e-9))
                longest = (struct wait){s, k, time};
            ended = t->end[s][k];
        }
    }
    return longest;
}

/* Finds what an op gets last. Returns its stage, or -1: nothing. */
static int last_input(const struct sp_plan *plan, const struct sp_times *t, const struct wait *w,
                      struct sp_op *op)
{
    struct sp_dep dep[SP_MAX_DEPS];
    struct sp_index ix;
    double latest = -1;
    int stage, index, found = -1, n;

    if (sp_index_create(plan, &ix, &stage, &index))
        return -1;
    n = sp_run_deps(plan, w->stage, &plan->programs[w->stage].ops[w->index], dep);
    for (int i = 0; i < n; i++) {
        int at = sp_index_place(&ix, plan, &dep[i]);

        if (at >= 0 && t->end[dep[i].stage][at] > latest) {
            latest = t->end[dep[i].stage][at];
            found = dep[i].stage;
            *op = dep[i].op;
        }
    }
    sp_index_destroy(&ix);
    return found;
}

static bool has_unit_costs(const struct sp_show *show)
{
    const struct sp_costs *c = &show->costs;

    return !show->machine && !show->execution && c->f == 1 && c->b == 1 && c->w == 1 &&
           c->comm <= 0 && c->wire <= 0;
}

void sp_show_idle_hint(const struct sp_show *show, FILE *out)
{
    const struct sp_plan *plan = show->plan;
    const struct sp_times *t = &show->prediction->times;
    bool sliced = plan->layout.slices > 1;
    char next[SP_OP_TEXT], before[SP_OP_TEXT], input[SP_OP_TEXT];
    const struct sp_op *ops;
    struct sp_op op;
    struct wait w;
    int from;

    if (t->bubble_ratio < 0.5 || !has_unit_costs(show) ||
        (plan->def != &sp_schedule_csv && !sp_schedule_owner(plan->def)))
        return;
    w = longest_wait(plan, t);
    from = last_input(plan, t, &w, &op);
    if (from < 0)
        return;
    ops = &plan->programs[w.stage].ops[w.index];
    sp_op_print(ops, sliced, next);
    sp_op_print(&op, sliced, input);
    fprintf(out,
            "hint       half idle or more: stage %d waits longest, %.6g before %s, for %s of stage "
            "%d; ",
            w.stage, w.time, next, input, from);
    if (w.index)
        fprintf(out, "list more between %s and %s, or %s earlier on stage %d\n",
                sp_op_print(ops - 1, sliced, before), next, input, from);
    else
        fprintf(out, "list %s earlier on stage %d, or run more micro-batches\n", input, from);
}
