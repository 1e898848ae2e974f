#include "policies/families/workers.h"
#include "policies/families/ownership.h"
#include "policies/refuse.h"
#include <stdio.h>

int sp_worker_check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

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
