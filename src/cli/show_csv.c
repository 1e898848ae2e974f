/*
 * The compute-only CSV of torch.distributed.pipelining: a row per rank, a cell per op in issue
 * order, <global stage><F|B|I|W><micro-batch>, where I is a backward of the input only and B a
 * full one. Slices and ops of sub-layers have no name in it.
 */
#include "cli/show.h"
#include "sp_error.h"

static int letter(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    int id;

    if (op->part != SP_CHUNK || plan->layout.slices > 1)
        return 0;
    switch (op->pass) {
    case SP_F:
        return 'F';
    case SP_B:
        id = plan->family->id(&plan->layout, stage, op);
        return plan->deferred && plan->deferred[id] ? 'I' : 'B';
    case SP_W:
        return 'W';
    default:
        return 0;
    }
}

int sp_show_csv(const struct sp_show *show, FILE *out)
{
    const struct sp_plan *plan = show->plan;

    for (int s = 0; s < plan->layout.stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];
            int c = letter(plan, s, op);
            char text[SP_OP_TEXT];

            if (!c)
                return sp_error(EINVAL, "show: the csv format has no word for %s of stage %d",
                                sp_op_print(op, plan->layout.slices > 1, text), s);
            fprintf(out, "%s%d%c%d", k ? "," : "",
                    sp_global_stage(&plan->layout, s, op->chunk), c, op->mb);
        }
        putc('\n', out);
    }
    return 0;
}
