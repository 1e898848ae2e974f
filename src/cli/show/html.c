/* The picture of a plan with its figures: as a page, or as the data that a page draws. */
#include "cli/show/show.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include "policies/simulation/times.h"
#include <stdarg.h>

#define MAX_FACTS 10

struct facts {
    int n;
    struct sp_gantt_fact fact[MAX_FACTS];
};

static void __attribute__((format(printf, 3, 4)))
add(struct facts *facts, const char *name, const char *fmt, ...)
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
    add(facts, "schedule", "%s: %s", plan->def->name, plan->def->summary);
    add(facts, "source", "%s", plan->def->source);
    sp_show_costs(show, costs, sizeof costs);
    add(facts, "costs", "%s", costs);
    add(facts, "makespan", "%.6g", t->makespan);
    if (sp_show_formula(show, &f))
        add(facts, "published makespan", "%.6g = %s (%s; %s)", f.makespan, f.source, f.claim,
            f.verdict);
    else
        add(facts, "published makespan", "none for this layout");
    add(facts, "bubble", "%.2f %%", 100 * t->bubble_ratio);
    add(facts, "messages", "%d", t->messages);
    add(facts, "peak memory", "%.6g micro-batch%s on a whole stage, on stage %d", most * g->share,
        most * g->share > 1 ? "es" : "", at);
}

static int draw(const struct sp_show *show, FILE *out,
                void (*print)(const struct sp_gantt *, int, const struct sp_gantt_fact *, int,
                              FILE *))
{
    struct facts facts = {0};
    struct sp_gantt g;

    if (sp_show_gantt(show, &g))
        return sp_error(ENOMEM, "show: no memory for a picture of %d ops", sp_plan_ops(show->plan));
    add_figures(show, &g, &facts);
    g.subtitle[0] = 0; /* the figures say it */
    print(&g, 1, facts.fact, facts.n, out);
    sp_gantt_destroy(&g);
    return 0;
}

int sp_show_html(const struct sp_show *show, FILE *out)
{
    return draw(show, out, sp_gantt_html);
}

int sp_show_picture(const struct sp_show *show, FILE *out)
{
    int ret = draw(show, out, sp_gantt_json);

    if (!ret)
        putc('\n', out);
    return ret;
}
