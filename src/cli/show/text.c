#include "policies/families/multiplexed/multiplex.h"
#include "cli/show/show.h"
#include "plan/slices.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include "policies/simulation/times.h"

static void print_published(const struct sp_show *show, FILE *out)
{
    struct sp_show_formula f;

    if (sp_show_formula(show, &f))
        fprintf(out, "published  %.6g = %s (%s; %s)\n", f.makespan, f.source, f.claim, f.verdict);
    else
        fprintf(out, "published  none for this layout\n");
}

/* Prints the share of all op time that goes to exchanges between devices of a stage. */
static void print_exchanges(const struct sp_show *show, FILE *out)
{
    const struct sp_plan *plan = show->plan;
    double exchanges = 0, all = 0;

    for (int s = 0; s < plan->layout.stages; s++) {
        all += show->prediction->times.busy[s];
        for (int k = 0; k < plan->programs[s].n; k++)
            exchanges +=
                sp_prediction_exchange(plan, show->prediction, s, &plan->programs[s].ops[k]);
    }
    if (exchanges > 0)
        fprintf(out, "exchanges  %.2f %% of what ops take\n", 100 * exchanges / all);
}

/* The most ops that a column may stand for: a picture of more is unreadable. */
enum { OPS_OF_COLUMN = 8 };

/* 0 or -ENOMEM. */
static int draw_plan(const struct sp_show *show, FILE *out)
{
    const struct sp_plan *plan = show->plan;
    struct sp_gantt g;

    if (sp_plan_ops(plan) / plan->layout.stages > OPS_OF_COLUMN * show->columns) {
        fprintf(out, "%d ops of a stage do not fit in %d columns; --width N takes more\n",
                sp_plan_ops(plan) / plan->layout.stages, show->columns);
        return 0;
    }
    if (sp_gantt_from_times(plan, &show->prediction->times, &g))
        return -ENOMEM;
    sp_gantt_text(&g, show->columns, show->color, out);
    sp_gantt_destroy(&g);
    return 0;
}

int sp_show_text(const struct sp_show *show, FILE *out)
{
    const struct sp_plan *plan = show->plan;
    const struct sp_times *t = &show->prediction->times;
    char costs[192], slices[160];
    double share = sp_activation_share(plan->family, &plan->layout);
    int err;

    if (draw_plan(show, out))
        return sp_error(ENOMEM, "show: no memory for a picture of %d ops", sp_plan_ops(plan));

    fprintf(out, "\nschedule   %s: %s\n", plan->def->name, plan->def->summary);
    fprintf(out, "source     %s\n", plan->def->source);
    sp_show_costs(show, costs, sizeof costs);
    fprintf(out, "costs      %s\n", costs);
    if (plan->first_token) {
        sp_slices_text(plan, 0, slices, sizeof slices);
        fprintf(out, "slices     of %s tokens\n", slices);
    }
    if (plan->recompute)
        sp_show_recompute_text(plan, out);
    fprintf(out, "makespan   %.6g, bubble %.2f %%, %d messages\n", t->makespan,
            100 * t->bubble_ratio, t->messages);
    sp_show_idle_hint(show, out);
    if (show->vary)
        fprintf(out, "varied     %s\n", show->vary);
    if (show->execution && show->execution->ready)
        fprintf(out, "scheduler  ready; strict takes %.6g, %.3f times as long\n",
                show->strict_makespan, t->makespan > 0 ? show->strict_makespan / t->makespan : 1);
    print_exchanges(show, out);
    print_published(show, out);
    if (show->buffers)
        fprintf(
            out,
            "sends      buffered: blocking ones would deadlock with less than %d on a channel\n",
            show->buffers);
    else
        fprintf(out, "sends      may block until the one before was received\n");

    fprintf(out, "\nstage %10s %10s %10s %8s  peak, micro-batches on a whole stage\n", "busy",
            "span", "idle", "bubble");
    for (int s = 0; s < plan->layout.stages; s++)
        fprintf(out, "%5d %10.6g %10.6g %10.6g %6.2f %% %5.4g\n", s, t->busy[s], t->span[s],
                t->idle[s], t->makespan > 0 ? 100 * t->idle[s] / t->makespan : 0,
                t->peak_live[s] * share);
    if (show->plan->parking)
        sp_show_parked_text(show, out);
    if (show->offload)
        sp_show_offload_text(show, out);
    if (sp_is_multiplexed(&plan->layout))
        sp_show_multiplex_text(show, out);
    err = sp_show_links_text(show, out);
    return err || !show->actions ? err : sp_show_actions_text(show, out);
}
