#include "policies/load/csv.h"
#include <errno.h>

static char letter(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    int id;

    switch (op->pass) {
    case SP_F:
        return 'F';
    case SP_B:
        id = plan->family->id(&plan->layout, stage, op);
        return plan->deferred && id >= 0 && plan->deferred[id] ? 'I' : 'B';
    default:
        return 'W';
    }
}

static int check(const struct sp_plan *plan, char *why, size_t n)
{
    const struct sp_layout *lay = &plan->layout;
    char text[SP_OP_TEXT];

    if (sp_pipes(lay) > 1) {
        snprintf(why, n, "the csv format has one copy of each stage, schedule %s has %d",
                 plan->def->name, sp_pipes(lay));
        return -EINVAL;
    }
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];

            if (op->part == SP_CHUNK && op->pass != SP_R && lay->slices == 1)
                continue;
            snprintf(why, n, "the csv format has no word for %s of stage %d",
                     sp_op_print(op, lay->slices > 1, text), s);
            return -EINVAL;
        }
    }
    return 0;
}

static void write_op(const struct sp_plan *plan, int stage, const struct sp_op *op, FILE *out)
{
    fprintf(out, "%d%c%d", sp_global_stage(&plan->layout, stage, op->chunk),
            letter(plan, stage, op), op->mb);
}

int sp_csv_write(const struct sp_plan *plan, FILE *out, char *why, size_t n)
{
    int ret = check(plan, why, n);

    for (int s = 0; !ret && s < plan->layout.stages; s++) {
        const struct sp_program *prog = &plan->programs[s];

        for (int k = 0; k < prog->n; k++) {
            if (k)
                putc(',', out);
            if (prog->ops[k].overlap && k + 1 < prog->n) {
                putc('(', out);
                write_op(plan, s, &prog->ops[k++], out);
                putc(';', out);
                write_op(plan, s, &prog->ops[k], out);
                fputs(")OVERLAP_F_B", out);
            } else {
                write_op(plan, s, &prog->ops[k], out);
            }
        }
        putc('\n', out);
    }
    return ret;
}
