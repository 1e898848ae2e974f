#include "cli/report/report.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "trace/analysis/causes.h"

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

void sp_report_text(const struct sp_report *r, FILE *out)
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
