#include "cli/train.h"
#include "plan/expected.h"
#include "sp_error.h"
#include "trace/gantt.h"
#include <string.h>

static int write_svg(const struct sp_gantt *g, const char *dir, const char *name)
{
    char path[4096];
    FILE *f;
    int bad;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    if (!f)
        return sp_error(errno, "cannot write %s: %s", path, strerror(errno));
    sp_gantt_svg(g, f);
    bad = ferror(f);
    bad |= fclose(f);
    if (bad)
        return sp_error(EIO, "cannot write %s", path);
    printf("picture: %s\n", path);
    return 0;
}

/* The ops of the last step as they ran, in milliseconds from the first. */
static int measured(const struct sp_trainer *t, struct sp_gantt *g)
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
                                 .mb = op->mb};

            snprintf(bar.label, sizeof bar.label, "%d", op->mb);
            sp_op_print(op, t->plan.layout.slices > 1, bar.name);
            err = sp_gantt_add(g, &bar);
        }
        if (g->idle_percent)
            g->idle_percent[s] = 100 * r->bubble_ratio;
        if (g->note)
            snprintf(g->note[s], sizeof g->note[s], "%.2f MiB", r->peak_bytes / 1048576);
    }
    snprintf(g->title, sizeof g->title, "%s measured: %s, %d stages, %d micro-batches",
             t->plan.def->name, t->model.name, t->plan.layout.stages, t->plan.layout.micro_batches);
    return err;
}

int sp_train_trace(struct sp_trainer *t)
{
    struct sp_gantt g;
    struct sp_times times;
    int err = measured(t, &g);

    if (!err)
        err = write_svg(&g, t->args.trace, "measured.svg");
    sp_gantt_destroy(&g);
    if (err || sp_expected_times(&t->plan, &t->report, &times))
        return err;
    err = sp_gantt_from_times(&t->plan, &times, &g);
    if (!err) {
        g.unit = "ms";
        snprintf(g.title, sizeof g.title, "%s expected: list simulation with the measured op times",
                 t->plan.def->name);
        err = write_svg(&g, t->args.trace, "expected.svg");
        sp_gantt_destroy(&g);
    }
    sp_times_destroy(&times);
    return err;
}
