#include "cli/compare/compare.h"
#include "cli/report/report.h"
#include "sp_figure.h"
#include <math.h>

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

void sp_compare_text(const struct sp_comparison *c, int rows, FILE *out)
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
