#include "policies/families/workers.h"
#include "policies/families/ownership.h"
#include "policies/refuse.h"
#include <stdio.h>

int sp_worker_check(const struct sp_layout *lay, int chunks, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = chunks;
    fit.slices = 1;
    return sp_refuse_chunks(lay, &fit, why, n);
}

bool sp_worker_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                       size_t n)
{
    if (op->mb % lay->stages == stage)
        return false;
    snprintf(why, n, "micro-batch %d is on stage %d", op->mb, op->mb % lay->stages);
    return true;
}

void sp_worker_elements(const struct sp_plan *plan, const struct sp_shape *sh, int64_t *layer,
                        int64_t *ends)
{
    *layer = *ends = 0;
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        int64_t n = (int64_t)sp_block_held(plan, &sh->held, (enum sp_block_kind)kind);

        *(sp_block_is_of_layer((enum sp_block_kind)kind) ? layer : ends) += n;
    }
}
