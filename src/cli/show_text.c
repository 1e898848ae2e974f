#include "cli/show.h"
#include "sp_error.h"
#include "trace/gantt.h"

/* The published makespan beside the simulated one. */
static void print_published(const struct sp_show *show, FILE *out)
{
    const struct sp_schedule_def *def = show->plan->def;
    const struct sp_costs *c = show->costs;
    double published = def->makespan ? def->makespan(&show->plan->layout, c->f, c->b, c->w) : -1;

    if (published < 0)
        fprintf(out, "published  none for this layout\n");
    else
        fprintf(out, "published  %.6g = %s%s\n", published, def->makespan_source,
                c->comm > 0 ? " (without communication)" : "");
}

int sp_show_text(const struct sp_show *show, FILE *out)
{
    const struct sp_plan *plan = show->plan;
    const struct sp_times *t = show->times;
    const struct sp_costs *c = show->costs;
    struct sp_gantt g;

    if (sp_gantt_from_times(plan, t, &g))
        return sp_error(ENOMEM, "show: no memory for a picture of %d ops", sp_plan_ops(plan));
    sp_gantt_text(&g, show->columns, show->color, out);
    sp_gantt_destroy(&g);

    fprintf(out, "\nschedule   %s: %s\n", plan->def->name, plan->def->summary);
    fprintf(out, "source     %s\n", plan->def->source);
    fprintf(out, "costs      f=%.6g b=%.6g w=%.6g of a micro-batch on a stage, comm=%.6g\n", c->f,
            c->b, c->w, c->comm);
    fprintf(out, "makespan   %.6g, bubble %.2f %%, %d messages\n", t->makespan,
            100 * t->bubble_ratio, t->messages);
    print_published(show, out);

    fprintf(out, "\nstage %10s %10s %10s %8s %6s\n", "busy", "span", "idle", "bubble", "peak");
    for (int s = 0; s < plan->layout.stages; s++)
        fprintf(out, "%5d %10.6g %10.6g %10.6g %6.2f %% %6d\n", s, t->busy[s], t->span[s],
                t->idle[s], t->makespan > 0 ? 100 * t->idle[s] / t->makespan : 0, t->peak_live[s]);
    return 0;
}
