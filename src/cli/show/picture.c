/* The picture of a plan: alone, or with its figures as a page or as the data that a page draws. */
#include "cli/show/show.h"
#include "policies/simulation/times.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include <stdarg.h>
#include <string.h>

/* Draws the simulated times, with the messages if they take time. 0, or -ENOMEM after one line. */
static int make_picture(const struct sp_show *show, struct sp_gantt *g)
{
    int ret = sp_gantt_from_times(show->plan, &show->prediction->times, g);
    size_t used;

    if (ret)
        goto err_memory;
    used = strlen(g->subtitle);
    used += (size_t)snprintf(g->subtitle + used, sizeof g->subtitle - used, "; costs: ");
    sp_show_costs(show, g->subtitle + used, sizeof g->subtitle - used);
    if (show->machine)
        g->unit = "ms";
    ret = sp_gantt_add_messages(g, show->plan, show->prediction);
    if (!ret)
        return 0;
    sp_gantt_destroy(g);
err_memory:
    return sp_error(ENOMEM, "show: no memory for a picture of %d ops", sp_plan_ops(show->plan));
}

int sp_show_svg(const struct sp_show *show, FILE *out)
{
    struct sp_gantt g;

    if (make_picture(show, &g))
        return -ENOMEM;
    sp_gantt_svg(&g, out);
    sp_gantt_destroy(&g);
    return 0;
}

enum { MAX_FACTS = 10 };

struct facts {
    int n;
    struct sp_gantt_fact fact[MAX_FACTS];
};

static void __attribute__((format(printf, 3, 4)))
add_fact(struct facts *facts, const char *name, const char *fmt, ...)
{
    struct sp_gantt_fact *fact = &facts->fact[facts->n++];
    va_list ap;

    snprintf(fact->name, sizeof fact->name, "%s", name);
    va_start(ap, fmt);
    vsnprintf(fact->value, sizeof fact->value, fmt, ap);
    va_end(ap);
}

static void add_figures(const struct sp_show *show, const struct sp_gantt *g, struct facts *facts)
{
    const struct sp_plan *plan = show->plan;
    const struct sp_times *t = &show->prediction->times;
    struct sp_show_formula f;
    char costs[192];
    int most = 0, at = 0;

    for (int s = 0; s < plan->layout.stages; s++) {
        if (t->peak_live[s] > most) {
            most = t->peak_live[s];
            at = s;
        }
    }
    add_fact(facts, "schedule", "%s: %s", plan->def->name, plan->def->summary);
    add_fact(facts, "source", "%s", plan->def->source);
    sp_show_costs(show, costs, sizeof costs);
    add_fact(facts, "costs", "%s", costs);
    add_fact(facts, "makespan", "%.6g", t->makespan);
    if (sp_show_formula(show, &f))
        add_fact(facts, "published makespan", "%.6g = %s (%s; %s)", f.makespan, f.source, f.claim,
                 f.verdict);
    else
        add_fact(facts, "published makespan", "none for this layout");
    add_fact(facts, "bubble", "%.2f %%", 100 * t->bubble_ratio);
    add_fact(facts, "messages", "%d", t->messages);
    add_fact(facts, "peak memory", "%.6g micro-batch%s on a whole stage, on stage %d",
             most * g->share, most * g->share > 1 ? "es" : "", at);
}

static int draw_with_figures(const struct sp_show *show, FILE *out,
                             void (*print)(const struct sp_gantt *, int,
                                           const struct sp_gantt_fact *, int, FILE *))
{
    struct facts facts = {0};
    struct sp_gantt g;

    if (make_picture(show, &g))
        return -ENOMEM;
    add_figures(show, &g, &facts);
    g.subtitle[0] = 0; /* the figures say it */
    print(&g, 1, facts.fact, facts.n, out);
    sp_gantt_destroy(&g);
    return 0;
}

int sp_show_html(const struct sp_show *show, FILE *out)
{
    return draw_with_figures(show, out, sp_gantt_html);
}

int sp_show_picture(const struct sp_show *show, FILE *out)
{
    int ret = draw_with_figures(show, out, sp_gantt_json);

    if (!ret)
        putc('\n', out);
    return ret;
}
