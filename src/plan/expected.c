#include "plan/expected.h"
#include "sp_error.h"
#include <stdlib.h>

int sp_expected_times(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_times *times)
{
    const struct sp_layout *lay = &plan->layout;
    size_t globals = (size_t)lay->stages * (size_t)lay->chunks;
    double *f = calloc(globals, sizeof *f), *b = calloc(globals, sizeof *b);
    /* A scale of 1 is a whole stage, of which a chunk is the v-th part. */
    double part = 1e-3 * lay->chunks / lay->micro_batches;
    struct sp_costs costs = {.f = 1, .b = 1, .w = 0, .scale_f = f, .scale_b = b};
    char why[256] = "";
    int err = f && b ? 0 : sp_error(ENOMEM, "out of memory for expected times");

    for (int s = 0; !err && s < lay->stages; s++)
        for (int i = 0; i < plan->programs[s].n; i++) {
            const struct sp_op *op = &plan->programs[s].ops[i];
            int g = sp_global_stage(lay, s, op->chunk);

            *(op->pass == SP_F ? &f[g] : &b[g]) += part * report->stages[s].ops[i].busy_us;
        }
    if (!err)
        err = sp_listsim(plan, &costs, SP_UNBOUNDED, times, why, sizeof why);
    free(f);
    free(b);
    return err;
}
