/* starpipe compare: where two records of a step differ. */
#include "cli/commands.h"
#include "cli/compare/compare.h"
#include "cli/print.h"
#include "cli/report/report.h"
#include "cli/result.h"
#include "sp_error.h"
#include "sp_figure.h"
#include "trace/timeline/json.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum format { TEXT, JSON, SVG, HTML };

/* ---- text */

static void print_parts(const struct sp_compared_part *part, int n, double least, FILE *out)
{
    for (int i = 0; i < n; i++) {
        char stage[16] = "all";

        if (fabs(part[i].time[1] - part[i].time[0]) < least)
            continue;
        if (part[i].stage >= 0)
            snprintf(stage, sizeof stage, "%d", part[i].stage);
        fprintf(out, "%5s  %-12s %10.3f %10.3f %+11.3f\n", stage,
                sp_part_of_step_name(part[i].part), sp_figure(part[i].time[0], 3),
                sp_figure(part[i].time[1], 3), sp_figure(part[i].time[1] - part[i].time[0], 3));
    }
}

static void print_ops(const struct sp_comparison *c, int rows, FILE *out)
{
    fprintf(out, "\nops by their length\nstage  %-12s %10s %10s %11s %11s\n", "op", "A", "B",
            "B - A", "starts");
    for (int i = 0; i < c->n_ops && i < rows; i++) {
        const struct sp_compared_op *op = &c->op[i];
        char text[SP_OP_TEXT];

        fprintf(out, "%5d  %-12s %10.3f %10.3f %+11.3f %+11.3f\n", c->t[0]->op[op->op[0]].stage,
                sp_timeline_name(c->t[0], op->op[0], text), op->length[0], op->length[1],
                sp_figure(op->length[1] - op->length[0], 3),
                sp_figure(op->start[1] - op->start[0], 3));
    }
    if (c->alone[0] || c->alone[1])
        fprintf(out,
                "%d ops of A are not in B, %d of B not in A, where they are compared by stage\n",
                c->alone[0], c->alone[1]);
}

/* At most `rows` of parts and of ops. */
static void print_text(const struct sp_comparison *c, int rows, FILE *out)
{
    const struct sp_timeline *a = c->t[0], *b = c->t[1];
    double least = 1e-4 * fmax(a->length, b->length);
    int parts = c->n_parts < rows ? c->n_parts : rows;

    fputs("A  ", out);
    sp_report_headline(a, out);
    fputs("\nB  ", out);
    sp_report_headline(b, out);
    fprintf(out, "\nB takes %+.4g%s, %+.1f %%\n", sp_figure(b->length - a->length, SP_FIGURE_ALL),
            *a->unit ? " ms" : "",
            a->length > 0 ? sp_figure(100 * (b->length / a->length - 1), 1) : 0);
    fprintf(out, "\nstage  %-12s %10s %10s %11s   (mean of the stages, then the largest)\n",
            "cause", "A", "B", "B - A");
    print_parts(c->mean, SP_STEP_PARTS, least, out);
    print_parts(c->part, parts, least, out);
    print_ops(c, rows, out);
}

/* ---- JSON */

/*
 * One object, times in milliseconds (in units of costs where there is no machine), A before B:
 *   a, b       {schedule, model, machine, source, step}
 *   step_ms    [A, B]
 *   parts      {name: [A, B]} in the mean over the stages
 *   stages     [{stage, part, ms: [A, B]}] the largest difference first
 *   ops        [{stage, op, ms: [A, B], start_ms: [A, B]}] of ops that both have, likewise
 *   alone      [A, B] how many ops the other has not
 */
static json_t *record_json(const struct sp_timeline *t)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:i}", "schedule", t->schedule, "model", t->model, "machine",
                     t->machine, "source", sp_timeline_source_name(t->source), "step", t->step);
}

static json_t *means_json(const struct sp_comparison *c)
{
    json_t *o = json_object();

    for (int i = 0; i < SP_STEP_PARTS; i++)
        json_object_set_new(o, sp_part_of_step_name(c->mean[i].part),
                            json_pack("[f,f]", sp_figure(c->mean[i].time[0], SP_FIGURE_ALL),
                                      sp_figure(c->mean[i].time[1], SP_FIGURE_ALL)));
    return o;
}

static json_t *stages_json(const struct sp_comparison *c)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n_parts; i++)
        json_array_append_new(list, json_pack("{s:i,s:s,s:[f,f]}", "stage", c->part[i].stage,
                                              "part", sp_part_of_step_name(c->part[i].part), "ms",
                                              sp_figure(c->part[i].time[0], SP_FIGURE_ALL),
                                              sp_figure(c->part[i].time[1], SP_FIGURE_ALL)));
    return list;
}

static json_t *ops_json(const struct sp_comparison *c)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n_ops; i++) {
        const struct sp_compared_op *op = &c->op[i];
        char text[SP_OP_TEXT];

        json_array_append_new(
            list, json_pack("{s:i,s:s,s:[f,f],s:[f,f]}", "stage", c->t[0]->op[op->op[0]].stage,
                            "op", sp_timeline_name(c->t[0], op->op[0], text), "ms", op->length[0],
                            op->length[1], "start_ms", sp_figure(op->start[0], SP_FIGURE_ALL),
                            sp_figure(op->start[1], SP_FIGURE_ALL)));
    }
    return list;
}

static int print_json(const struct sp_comparison *c, FILE *out)
{
    json_t *root = json_pack("{s:o,s:o,s:[f,f],s:o,s:o,s:o,s:[i,i]}", "a", record_json(c->t[0]),
                             "b", record_json(c->t[1]), "step_ms", c->t[0]->length, c->t[1]->length,
                             "parts", means_json(c), "stages", stages_json(c), "ops", ops_json(c),
                             "alone", c->alone[0], c->alone[1]);

    return sp_json_print(root, JSON_REAL_PRECISION(12), out)
               ? sp_error(ENOMEM, "compare: no memory for JSON, or it cannot be written")
               : 0;
}

/* ---- the command */

/* -EINVAL after one line for records that have nothing in common. */
static int check_comparable(const struct sp_timeline *a, const struct sp_timeline *b,
                            const char *const path[2])
{
    if (strcmp(a->unit, b->unit))
        return sp_error(EINVAL,
                        "compare: times of %s are in %s, of %s in %s: predict both on a machine",
                        path[0], *a->unit ? a->unit : "units of costs", path[1],
                        *b->unit ? b->unit : "units of costs");
    if (*a->model && *b->model && strcmp(a->model, b->model))
        return sp_error(EINVAL, "compare: %s is of %s and %s of %s: take one model", path[0],
                        a->model, path[1], b->model);
    if (a->stages != b->stages)
        return sp_error(EINVAL,
                        "compare: %s has %d stages and %s %d: stages are compared one by one",
                        path[0], a->stages, path[1], b->stages);
    if (a->micro_batches != b->micro_batches)
        return sp_error(EINVAL,
                        "compare: %s has %d micro-batches and %s %d: steps of different work",
                        path[0], a->micro_batches, path[1], b->micro_batches);
    return 0;
}

static int print_comparison(const struct sp_timeline t[2], enum format format, int rows)
{
    struct sp_comparison c;
    int err = sp_comparison_make(&t[0], &t[1], &c);

    if (err)
        return sp_error(-err, "compare: no memory for steps of %d and %d ops", t[0].n_ops,
                        t[1].n_ops);
    if (format == TEXT)
        print_text(&c, rows, stdout);
    else
        err = format == JSON  ? print_json(&c, stdout)
              : format == SVG ? sp_compare_svg(&c, stdout)
                              : sp_compare_html(&c, stdout);
    sp_comparison_destroy(&c);
    return err;
}

int sp_cmd_compare(int argc, char **argv)
{
    const char *path[2] = {NULL, NULL};
    struct sp_result result = {0};
    int rows = 10, given;
    bool rows_set = false;
    const struct sp_option options[] = {
        SP_OPTION("A", OPERAND, path[0],
                  .help = "a record of a step: the DIR of 'train --trace', a file of it, or of "
                          "'show --format "
                          "perfetto'",
                  .arg = "DIR|FILE.json"),
        SP_OPTION("B", OPERAND, path[1], .help = "what A is compared with", .arg = "DIR|FILE.json"),
        SP_OPTION("rows", INT, rows,
                  .help = "rows of each table of the text, the largest differences", .arg = "N",
                  .min = 1, .max = 1000000, .given = &rows_set),
        SP_RESULT_OPTIONS(result, "text|json|svg|html"),
        {0},
    };
    struct sp_timeline t[2] = {0};
    int err = sp_options_parse(
        options, "Says by op, stage and cause where two recorded steps differ.", argc, argv);

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (rows_set && result.format != TEXT)
        err = sp_error(EINVAL, "compare: --rows is for --format text");
    for (given = 0; !err && given < 2; given++)
        err = sp_timeline_load("compare", path[given], &t[given]);
    err = err ? err : check_comparable(&t[0], &t[1], path);
    if (err) {
        sp_timeline_destroy(&t[0]);
        sp_timeline_destroy(&t[1]);
        return 2;
    }
    err = sp_result_begin("compare", result.output, 0);
    err = err ? err : print_comparison(t, (enum format)result.format, rows);
    sp_timeline_destroy(&t[0]);
    sp_timeline_destroy(&t[1]);
    return err ? 1 : 0;
}
