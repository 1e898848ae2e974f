/*
 * One object, times in milliseconds (in units of costs where there is no machine):
 *   schedule, model, machine, source, step, stages, step_ms, span_ms, bubble_ratio
 *   causes     {name: {ms, bubble}} rows that add up to the span
 *   parts[s]   {name: ms} of stage s: they add up to step_ms
 *   without    [{cause, step_ms, gain_ms, stage, text}] the largest gain first
 *   path       {ops: [[stage, op]], messages, parts: {name: ms}, text}
 *   waits      [{stage, op, ms, start_ms, part, for: [stage, op] or null}] the longest first
 */
#include "cli/report/report.h"
#include "cli/print.h"
#include "sp_error.h"
#include "sp_figure.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int sp_report_json(const struct sp_report *r, FILE *out)
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
