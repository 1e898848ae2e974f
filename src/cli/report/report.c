/* starpipe report: where the time of a step went, from its record. */
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/report/report.h"
#include "cli/result.h"
#include "sp_error.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "trace/analysis/causes.h"
#include "trace/timeline/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum format { TEXT, JSON, HTML };

/* ---- text */

static const char *unit_of(const struct sp_timeline *t)
{
    return *t->unit ? " ms" : "";
}

void sp_report_headline(const struct sp_timeline *t, FILE *out)
{
    char schedule[SP_TEXT_SHOWN], model[SP_TEXT_SHOWN], machine[SP_TEXT_SHOWN];

    fprintf(out, "%s%s%s, %s, %s, %s", sp_text_show(t->schedule, schedule, sizeof schedule),
            *t->model ? ", " : "", sp_text_show(t->model, model, sizeof model),
            SP_COUNT(t->stages, "stage"), SP_COUNT(t->micro_batches, "micro-batch"),
            sp_timeline_source_name(t->source));
    if (t->source == SP_TIMELINE_MEASURED)
        fprintf(out, " in %s", SP_COUNT(t->processes, "process"));
    else if (*t->machine)
        fprintf(out, " on %s", sp_text_show(t->machine, machine, sizeof machine));
    if (t->step >= 0)
        fprintf(out, ", step %d", t->step);
    fprintf(out, ": %.4g%s, bubble %.1f %%", t->length, unit_of(t), sp_figure(100 * t->bubble, 1));
}

bool sp_report_counts(const struct sp_report *r, const struct sp_finding *f)
{
    return f->gain >= 1e-3 * r->t->length;
}

static void print_findings(const struct sp_report *r, FILE *out)
{
    const struct sp_timeline *t = r->t;
    char shown[SP_TEXT_SHOWN];
    int n = 0;

    fputs("\nwhat the step would take without each cause, by itself\n", out);
    for (int i = 0; i < SP_FINDINGS; i++) {
        const struct sp_finding *f = &r->finding[i];

        if (!sp_report_counts(r, f))
            continue;
        fprintf(out, "%2d. %.4g%s (-%.1f %%) without %s: %s\n", ++n, t->length - f->gain,
                unit_of(t), 100 * f->gain / t->length, sp_finding_name(f->kind),
                sp_text_show(f->text, shown, sizeof shown));
    }
    if (!n)
        fputs("    nothing makes a difference: the step is its order\n", out);
}

void sp_report_wait(const struct sp_report *r, const struct sp_long_wait *wait, FILE *out)
{
    const struct sp_timeline *t = r->t;
    char op[SP_OP_TEXT], producer[SP_OP_TEXT];

    fprintf(out, "stage %d waited %.4g%s from %.4g on before %s, for %s", t->op[wait->op].stage,
            wait->time, unit_of(t), wait->start, sp_timeline_name(t, wait->op, op),
            sp_part_of_step_words(wait->part));
    if (wait->producer >= 0 && wait->part <= SP_STEP_INTERFACE)
        fprintf(out, ": %s of stage %d", sp_timeline_name(t, wait->producer, producer),
                t->op[wait->producer].stage);
}

static void print_text(const struct sp_report *r, FILE *out)
{
    sp_report_headline(r->t, out);
    fputs("\n\n", out);
    sp_causes_print(&r->waits, &r->causes, out);
    fputs("\n", out);
    sp_waits_print(&r->waits, out);
    print_findings(r, out);
    fputs("\n", out);
    sp_path_print(&r->waits, &r->path, out);
    fputs("\nlongest waits\n", out);
    for (int i = 0; i < r->n_longest; i++) {
        fprintf(out, "%2d. ", i + 1);
        sp_report_wait(r, &r->longest[i], out);
        fputs("\n", out);
    }
    if (!r->n_longest)
        fputs("    none\n", out);
}

/* ---- JSON */

/*
 * One object, times in milliseconds (in units of costs where there is no machine):
 *   schedule, model, machine, source, step, stages, step_ms, span_ms, bubble_ratio
 *   causes     {name: {ms, bubble}} rows that add up to the span
 *   parts[s]   {name: ms} of stage s: they add up to step_ms
 *   without    [{cause, step_ms, gain_ms, stage, text}] the largest gain first
 *   path       {ops: [[stage, op]], messages, parts: {name: ms}, text}
 *   waits      [{stage, op, ms, start_ms, part, for: [stage, op] or null}] the longest first
 */
static json_t *parts_json(const double parts[SP_STEP_PARTS])
{
    json_t *o = json_object();

    for (int i = 0; i < SP_STEP_PARTS; i++)
        json_object_set_new(o, sp_part_of_step_name((enum sp_part_of_step)i),
                            json_real(sp_figure(parts[i], SP_FIGURE_ALL)));
    return o;
}

static json_t *op_json(const struct sp_timeline *t, int op)
{
    char text[SP_OP_TEXT];

    return op < 0 ? json_null()
                  : json_pack("[i,s]", t->op[op].stage, sp_timeline_name(t, op, text));
}

static json_t *causes_json(const struct sp_causes *c)
{
    static const char *const names[SP_CAUSES] = {
        [SP_CAUSE_SCHEDULE] = "order",  [SP_CAUSE_OPS] = "ops",
        [SP_CAUSE_CORES] = "cores",     [SP_CAUSE_OFFLOAD] = "offload",
        [SP_CAUSE_RUNTIME] = "runtime", [SP_CAUSE_MESSAGES] = "messages",
        [SP_CAUSE_REST] = "rest"};
    json_t *o = json_object();

    for (int k = 0; k < SP_CAUSES; k++)
        json_object_set_new(o, names[k],
                            json_pack("{s:f,s:f}", "ms", sp_figure(c->ms[k], SP_FIGURE_ALL),
                                      "bubble", sp_figure(c->bubble[k], SP_FIGURE_ALL)));
    return o;
}

static json_t *findings_json(const struct sp_report *r)
{
    json_t *list = json_array();

    for (int i = 0; i < SP_FINDINGS; i++) {
        const struct sp_finding *f = &r->finding[i];

        if (sp_report_counts(r, f))
            json_array_append_new(list, json_pack("{s:s,s:f,s:f,s:i,s:s}", "cause",
                                                  sp_finding_name(f->kind), "step_ms",
                                                  r->t->length - f->gain, "gain_ms", f->gain,
                                                  "stage", f->stage, "text", f->text));
    }
    return list;
}

static json_t *path_json(const struct sp_report *r)
{
    json_t *ops = json_array(), *o;
    char *text = NULL;
    size_t n = 0;
    FILE *words = open_memstream(&text, &n);

    for (int i = 0; i < r->path.n; i++)
        json_array_append_new(ops, op_json(r->t, r->waits.unit[r->path.unit[i]].op));
    if (words) {
        sp_path_print(&r->waits, &r->path, words);
        fclose(words);
        text[strcspn(text, "\n")] = 0;
    }
    o = json_pack("{s:o,s:i,s:o,s:s}", "ops", ops, "messages", r->path.messages, "parts",
                  parts_json(r->path.part), "text", text ? text : "");
    free(text);
    return o;
}

static json_t *waits_json(const struct sp_report *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n_longest; i++) {
        const struct sp_long_wait *wait = &r->longest[i];
        char text[SP_OP_TEXT];

        json_array_append_new(
            list,
            json_pack("{s:i,s:s,s:f,s:f,s:s,s:o}", "stage", r->t->op[wait->op].stage, "op",
                      sp_timeline_name(r->t, wait->op, text), "ms", wait->time, "start_ms",
                      sp_figure(wait->start, SP_FIGURE_ALL), "part",
                      sp_part_of_step_name(wait->part), "for", op_json(r->t, wait->producer)));
    }
    return list;
}

static int print_json(const struct sp_report *r, FILE *out)
{
    const struct sp_timeline *t = r->t;
    json_t *parts = json_array(), *root;

    for (int s = 0; s < t->stages; s++)
        json_array_append_new(parts, parts_json(r->waits.stage[s]));
    root =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:f,s:o,s:o,s:o,s:o,s:o}", "schedule",
                  t->schedule, "model", t->model, "machine", t->machine, "source",
                  sp_timeline_source_name(t->source), "unit", t->unit, "step", t->step, "stages",
                  t->stages, "step_ms", t->length, "span_ms", t->span, "bubble_ratio",
                  sp_figure(t->bubble, SP_FIGURE_ALL), "causes", causes_json(&r->causes), "parts",
                  parts, "without", findings_json(r), "path", path_json(r), "waits", waits_json(r));
    return sp_json_print(root, JSON_REAL_PRECISION(12), out)
               ? sp_error(ENOMEM, "report: no memory for JSON, or it cannot be written")
               : 0;
}

/* ---- the command */

int sp_report_make(const struct sp_timeline *t, struct sp_report *r)
{
    int err;

    *r = (struct sp_report){.t = t};
    err = sp_waits_create(t, &r->waits);
    if (err)
        return err;
    err = sp_causes_find(&r->waits, &r->causes);
    err = err ? err : sp_path_find(&r->waits, &r->path);
    err = err ? err : sp_findings_make(&r->waits, r->finding);
    r->n_longest = sp_long_waits(&r->waits, r->longest);
    if (err)
        sp_report_destroy(r);
    return err;
}

void sp_report_destroy(struct sp_report *r)
{
    sp_waits_destroy(&r->waits);
    sp_path_destroy(&r->path);
}

static int print_report(const struct sp_timeline *t, enum format format)
{
    struct sp_report r;
    int err = sp_report_make(t, &r);

    if (err)
        return sp_error(-err, "report: no memory for the report of %d ops", t->n_ops);
    if (format == TEXT)
        print_text(&r, stdout);
    else
        err = format == JSON ? print_json(&r, stdout) : sp_report_html(&r, stdout);
    sp_report_destroy(&r);
    return err;
}

int sp_cmd_report(int argc, char **argv)
{
    const char *path = NULL;
    struct sp_result result = {0};
    const struct sp_option options[] = {
        SP_OPTION(
            "RECORD", OPERAND, path,
            .help =
                "the DIR of 'train --trace' or 'simulate --trace', or a file of it, or of 'show "
                "--format perfetto'",
            .arg = "DIR|FILE.json"),
        SP_RESULT_OPTIONS(result, "text|json|html"),
        {0},
    };
    struct sp_timeline t;
    int err = sp_options_parse(options, "Says where the time of a recorded step went, and why.",
                               argc, argv);

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (sp_timeline_load("report", path, &t))
        return 2;
    err = sp_result_begin("report", result.output, 0);
    err = err ? err : print_report(&t, (enum format)result.format);
    sp_timeline_destroy(&t);
    return err ? 1 : 0;
}
