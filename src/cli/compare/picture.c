/* Both steps on one axis. */
#include "cli/compare/compare.h"
#include "sp_error.h"
#include "trace/timeline/pictures.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int draw_each(const struct sp_comparison *c, struct sp_gantt g[2])
{
    int err = 0;

    for (int k = 0; !err && k < 2; k++) {
        err = sp_gantt_of_timeline(c->t[k], &g[k]);
        if (!err)
            snprintf(g[k].title, sizeof g[k].title, "%c: %.64s, %.64s", "AB"[k],
                     c -> t[k] -> schedule, sp_timeline_source_name(c->t[k]->source));
    }
    return err;
}

/* Row 2 s + k is stage s of picture k. */
static int merge(const struct sp_gantt g[2], struct sp_gantt *both)
{
    int at[2] = {0, 0}, to[2] = {0, 0};
    int err = sp_gantt_create(2 * g[0].stages, both);

    both->row = calloc(2 * (size_t)g[0].stages, sizeof *both->row);
    if (err || !both->row)
        return -ENOMEM;
    both->unit = g[0].unit;
    both->end = fmax(g[0].end, g[1].end);
    both->notes = g[0].notes;
    both->parts = g[0].parts;
    both->share = g[0].share;
    for (int k = 0; k < 2; k++)
        for (int i = 0; !err && i < g[k].n_away; i++) {
            struct sp_gantt_evicted moved = g[k].evicted[i];

            moved.stage = 2 * moved.stage + k;
            err = sp_gantt_add_evicted(both, &moved);
        }
    for (int row = 0; !err && row < both->stages; row++) {
        const struct sp_gantt *from = &g[row % 2];
        int *bar = &at[row % 2], *message = &to[row % 2];

        snprintf(both->row[row], sizeof *both->row, "%c stage %d", "AB"[row % 2], row / 2);
        both->idle_percent[row] = from->idle_percent[row / 2];
        memcpy(both->note[row], from->note[row / 2], sizeof *both->note);
        for (; !err && *bar < from->n && from->bars[*bar].stage == row / 2; ++*bar) {
            struct sp_bar moved = from->bars[*bar];

            moved.stage = row;
            err = sp_gantt_add(both, &moved);
        }
        for (; !err && *message < from->n_messages && from->messages[*message].to == row / 2;
             ++*message) {
            struct sp_gantt_message moved = from->messages[*message];

            moved.to = row;
            err = sp_gantt_add_message(both, &moved);
        }
    }
    return err;
}

int sp_compare_svg(const struct sp_comparison *c, FILE *out)
{
    struct sp_gantt g[2] = {0}, both = {0};
    int err = draw_each(c, g);

    err = err ? err : merge(g, &both);
    if (!err) {
        snprintf(both.title, sizeof both.title, "%.79s; %.78s", g[0].title, g[1].title);
        for (int k = 0; k < 2; k++) {
            const struct sp_timeline *t = c->t[k];
            bool known = t->source != SP_TIMELINE_MEASURED && *t->machine;
            size_t used = strlen(both.subtitle);

            snprintf(both.subtitle + used, sizeof both.subtitle - used,
                     "%s%c: %.4g%s%s%.64s%s%.64s", k ? "; " : "", "AB"[k], t -> length,
                     *t -> unit ? " ms" : "", *t->model ? ", " : "", t->model, known ? ", on " : "",
                     known ? t->machine : "");
        }
        sp_gantt_svg(&both, out);
    }
    for (int k = 0; k < 2; k++)
        sp_gantt_destroy(&g[k]);
    sp_gantt_destroy(&both);
    return err ? sp_error(-err, "compare: no memory for a picture") : 0;
}

int sp_compare_html(const struct sp_comparison *c, FILE *out)
{
    struct sp_gantt_fact facts[2 + SP_STEP_PARTS] = {{.name = "A"}, {.name = "B"}};
    struct sp_gantt g[2] = {0};
    const char *unit = *c->t[0]->unit ? " ms" : "";
    int err = draw_each(c, g), n = 2;

    for (int k = 0; k < 2; k++)
        snprintf(facts[k].value, sizeof facts[k].value, "%.64s, %s: %.4g%s", c->t[k]->schedule,
                 sp_timeline_source_name(c->t[k]->source), c->t[k]->length, unit);
    for (int i = 0; i < SP_STEP_PARTS; i++) {
        const struct sp_compared_part *part = &c->mean[i];
        double more = part->time[1] - part->time[0];

        if (fabs(more) < 1e-4 * c->t[0]->length)
            continue;
        snprintf(facts[n].name, sizeof facts[n].name, "%s", sp_part_of_step_name(part->part));
        snprintf(facts[n].value, sizeof facts[n].value,
                 "%.4g and %.4g%s in the mean of the stages: %+.4g", part->time[0], part->time[1],
                 unit, more);
        n++;
    }
    if (!err)
        sp_gantt_html(g, 2, facts, n, out);
    for (int k = 0; k < 2; k++)
        sp_gantt_destroy(&g[k]);
    return err ? sp_error(-err, "compare: no memory for a picture") : 0;
}
