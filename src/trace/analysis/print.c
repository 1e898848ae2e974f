#include "trace/analysis/causes.h"
#include "sp_figure.h"
#include <math.h>

/* True if a part is worth a column: it takes a thousandth of the step on some stage. */
static bool is_worth_a_column(const struct sp_waits *w, enum sp_part_of_step part)
{
    for (int s = 0; s < w->t->stages; s++)
        if (fabs(w->stage[s][part]) >= 1e-3 * w->t->length)
            return true;
    return false;
}

void sp_causes_print(const struct sp_waits *w, const struct sp_causes *c, FILE *out)
{
    const struct sp_timeline *t = w->t;
    bool shares_workers = false, moves = false;
    const char *names[SP_CAUSES] = {
        [SP_CAUSE_SCHEDULE] = "the order itself, its ops at their usual times",
        [SP_CAUSE_OPS] = "ops that took more or less than usual",
        [SP_CAUSE_CORES] = "waiting for a core",
        [SP_CAUSE_OFFLOAD] = "tensors that leave memory and come back",
        [SP_CAUSE_RUNTIME] = "the runtime, before tasks that could start",
        [SP_CAUSE_MESSAGES] = "messages between processes",
        [SP_CAUSE_REST] = t->overlaps ? "rest; steps that overlap" : "rest",
    };

    for (int s = 0; s < t->stages; s++) {
        shares_workers |= t->stage[s].lane != s;
        moves |= t->stage[s].left != 0;
    }
    if (shares_workers)
        names[SP_CAUSE_CORES] = "waiting for a core, stages that share one";
    fprintf(out, "where it went %45s %12s\n", *t->unit ? "ms" : "time", "bubble points");
    for (int k = 0; k < SP_CAUSES; k++) {
        bool alone = t->processes == 1 && !is_worth_a_column(w, SP_STEP_MESSAGE);

        if ((k == SP_CAUSE_MESSAGES && alone) || (k == SP_CAUSE_OFFLOAD && !moves))
            continue;
        fprintf(out, k ? "+ %-46s %+10.2f %+13.1f\n" : "  %-46s %10.2f %13.1f\n", names[k],
                sp_figure(c->ms[k], 2), sp_figure(100 * c->bubble[k], 1));
    }
    fprintf(out, "= %-46s %10.2f %13.1f\n", "measured, from the first op to the last",
            c->measured_ms, 100 * c->measured_bubble);
    if (!t->overlaps && t->length > t->span)
        fprintf(out, "+ %-46s %+10.2f\n", "norm, update, tokens of the next step, report",
                sp_figure(t->length - c->measured_ms, 2));
}

void sp_waits_print(const struct sp_waits *w, FILE *out)
{
    const struct sp_timeline *t = w->t;

    fprintf(out, "stage %9s", *t->unit ? "step ms" : "step");
    for (int i = 0; i < SP_STEP_PARTS; i++)
        if (is_worth_a_column(w, (enum sp_part_of_step)i))
            fprintf(out, " %10s", sp_part_of_step_name((enum sp_part_of_step)i));
    fputs("\n", out);
    for (int s = 0; s < t->stages; s++) {
        fprintf(out, "%5d %9.2f", s, t->length);
        for (int i = 0; i < SP_STEP_PARTS; i++)
            if (is_worth_a_column(w, (enum sp_part_of_step)i))
                fprintf(out, " %10.2f", sp_figure(w->stage[s][i], 2));
        fputs("\n", out);
    }
}
