/* The forms of the output that need no file of their own, and its destination. */
#include "cli/result.h"
#include "cli/show/show.h"
#include "policies/load/csv.h"
#include "policies/simulation/times.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include "trace/timeline/json.h"
#include "train/start/outputs.h"
#include <stdarg.h>
#include <string.h>

/* ---- the picture of a plan: alone, or with its figures as a page or as the data that a page
 * draws */

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

static int print_svg(const struct sp_show *show, FILE *out)
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

static int print_html(const struct sp_show *show, FILE *out)
{
    return draw_with_figures(show, out, sp_gantt_html);
}

static int print_picture(const struct sp_show *show, FILE *out)
{
    int ret = draw_with_figures(show, out, sp_gantt_json);

    if (!ret)
        putc('\n', out);
    return ret;
}

/* ---- CSV and records */

static int print_csv(const struct sp_show *show, FILE *out)
{
    char why[160];
    int ret = sp_csv_write(show->plan, out, why, sizeof why);

    return ret ? sp_error(-ret, "show: %s", why) : 0;
}

/* The list simulation as a record of a step. */
static int print_perfetto(const struct sp_show *show, FILE *out)
{
    const struct sp_timeline_terms terms = {.plan = show->plan,
                                            .shape = show->shape,
                                            .recompute = show->recompute.mode,
                                            .every = show->recompute.every};
    char costs[192];
    struct sp_timeline t;
    int err = sp_timeline_of_prediction(&terms, show->prediction, &t);

    if (!err) {
        snprintf(t.unit, sizeof t.unit, "%s", show->machine ? "ms" : "");
        snprintf(t.model, sizeof t.model, "%s", show->model);
        sp_show_costs(show, costs, sizeof costs);
        snprintf(t.machine, sizeof t.machine, "%s", costs);
        err = sp_timeline_write(&t, out);
        sp_timeline_destroy(&t);
    }
    return err ? sp_error(-err, "show: no memory for the record of %d ops", sp_plan_ops(show->plan))
               : 0;
}

int sp_show_check_output(const char *output, const struct sp_layout_args *layout)
{
    struct sp_files files = {0};
    int err;

    if (!output)
        return 0;
    err = sp_files_add(&files, SP_FILE_WRITTEN, "--output", output);
    err = err ? err : sp_files_add_layout(&files, layout);
    err = err ? err : sp_files_check(&files, "show");
    sp_files_free(&files);
    return err;
}

int sp_show_write(const struct sp_show *show, enum sp_show_format format, const char *output)
{
    static int (*const print[])(const struct sp_show *, FILE *) = {
        [SP_SHOW_TEXT] = sp_show_text,       [SP_SHOW_JSON] = sp_show_json,
        [SP_SHOW_CSV] = print_csv,           [SP_SHOW_SVG] = print_svg,
        [SP_SHOW_HTML] = print_html,         [SP_SHOW_PICTURE] = print_picture,
        [SP_SHOW_PERFETTO] = print_perfetto,
    };
    int err = sp_result_begin("show", output, 0);

    return err ? err : print[format](show, stdout);
}
