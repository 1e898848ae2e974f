#include "cli/train/trace.h"
#include "plan/expected.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include "policies/simulation/times.h"
#include <string.h>

/* A file of the directory, opened; NULL after one line on stderr. */
static FILE *create(const char *dir, const char *name, char *path, size_t n)
{
    FILE *f;

    snprintf(path, n, "%s/%s", dir, name);
    f = fopen(path, "w");
    if (!f)
        sp_error(errno, "cannot write %s: %s", path, strerror(errno));
    return f;
}

static int finish(FILE *f, const char *path, const char *what)
{
    int bad = ferror(f);

    bad |= fclose(f);
    if (bad)
        return sp_error(EIO, "cannot write %s", path);
    printf("%s: %s\n", what, path);
    return 0;
}

static int write_svg(const struct sp_gantt *g, const char *dir, const char *name)
{
    char path[4096];
    FILE *f = create(dir, name, path, sizeof path);

    if (!f)
        return -EIO;
    sp_gantt_svg(g, f);
    return finish(f, path, "picture");
}

/* Measured over expected, on one axis. */
static int write_page(const struct sp_trainer *t, const struct sp_gantt g[2])
{
    struct sp_gantt_fact facts[3] = {
        {.name = "schedule"}, {.name = "measured"}, {.name = "expected"}};
    char path[4096];
    FILE *f = create(t->cfg.trace, "trace.html", path, sizeof path);

    if (!f)
        return -EIO;
    snprintf(facts[0].value, sizeof facts[0].value, "%s: %s", t->plan.def->name,
             t->plan.def->summary);
    for (int i = 0; i < 2; i++)
        snprintf(facts[i + 1].value, sizeof facts[i + 1].value, "%.4g ms", g[i].end);
    sp_gantt_html(g, 2, facts, 3, f);
    return finish(f, path, "page");
}

int sp_trace_gantt(const struct sp_trainer *t, struct sp_gantt *g)
{
    static const enum sp_bar_kind kinds[] = {
        [SP_F] = SP_BAR_F, [SP_B] = SP_BAR_B, [SP_W] = SP_BAR_W, [SP_R] = SP_BAR_R};
    int err = sp_gantt_create(t->place.stages, g);

    if (err)
        return err;
    g->unit = "ms";
    g->end = t->report.span_us / 1e3;
    for (int s = 0; !err && s < t->place.stages; s++) {
        const struct sp_stage_report *r = &t->report.stages[s];

        for (int i = 0; !err && i < r->n_ops; i++) {
            const struct sp_op *op = &t->plan.programs[s].ops[i];
            struct sp_bar bar = {.start = r->ops[i].start_us / 1e3,
                                 .end = r->ops[i].end_us / 1e3,
                                 .stage = s,
                                 .kind = kinds[op->pass],
                                 .mb = op->mb,
                                 .chunk = sp_gantt_shade(op),
                                 .joined = op->overlap};

            sp_gantt_label(&t->plan, op, bar.label);
            sp_op_print(op, t->plan.layout.slices > 1, bar.name);
            err = sp_gantt_add(g, &bar);
        }
        if (g->idle_percent)
            g->idle_percent[s] = 100 * r->bubble_ratio;
        if (g->note)
            snprintf(g->note[s], sizeof g->note[s], "%.2f MiB", r->peak_bytes / 1048576);
    }
    if (!err)
        sp_gantt_set_live(g, &t->plan);
    snprintf(g->title, sizeof g->title, "%s measured: %s, %d stages, %d micro-batches",
             t->plan.def->name, t->model.name, t->plan.layout.stages, t->plan.layout.micro_batches);
    return err;
}

/* What came from other processes: from the end of the op that sent it until it was there. Inside a
 * process nothing moves. */
static int add_messages(const struct sp_trainer *t, struct sp_gantt *g)
{
    const struct sp_plan *plan = &t->plan;
    int err = 0;

    for (int s = 0; s < t->place.stages; s++)
        for (int i = 0; !err && i < t->report.stages[s].n_ops; i++) {
            double arrived = t->report.stages[s].ops[i].arrived_us;
            struct sp_dep deps[SP_MAX_DEPS];
            int n = 0;

            if (arrived > 0)
                n = plan->family->deps(&plan->layout, s, &plan->programs[s].ops[i], deps);
            for (int d = 0; !err && d < n; d++) {
                struct sp_gantt_message m = {.from = deps[d].stage, .to = s};
                int at = sp_index_place(&t->graph.places, plan, &deps[d]);

                if (sp_stage_rank(&t->place, deps[d].stage) == sp_stage_rank(&t->place, s))
                    continue;
                m.sent = t->report.stages[deps[d].stage].ops[at].end_us / 1e3;
                m.arrived = arrived / 1e3;
                sp_op_print(&deps[d].op, plan->layout.slices > 1, m.name);
                err = sp_gantt_add_message(g, &m);
            }
        }
    return err;
}

int sp_trace_write(const struct sp_trainer *t)
{
    struct sp_gantt g[2] = {0};
    struct sp_times times = {0};
    int err = sp_trace_gantt(t, &g[0]);

    err = err ? err : add_messages(t, &g[0]);
    err = err ? err : write_svg(&g[0], t->cfg.trace, "measured.svg");
    err = err ? err : sp_expected_times(&t->plan, &t->report, &times);
    err = err ? err : sp_gantt_from_times(&t->plan, &times, &g[1]);
    if (!err) {
        g[1].unit = "ms";
        snprintf(g[1].title, sizeof g[1].title,
                 "%s expected: list simulation with the median time of each kind of op",
                 t->plan.def->name);
        err = write_svg(&g[1], t->cfg.trace, "expected.svg");
    }
    err = err ? err : write_page(t, g);
    sp_gantt_destroy(&g[0]);
    sp_gantt_destroy(&g[1]);
    sp_times_destroy(&times);
    return err;
}
