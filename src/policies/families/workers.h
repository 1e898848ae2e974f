/* Shared by the families in which worker i mod P keeps micro-batch i, and weights come to the
 * worker. */
#ifndef SP_WORKERS_H
#define SP_WORKERS_H

#include "starpipe/schedule.h"
#include <stdbool.h>
#include <stdio.h>

/* struct sp_family: foreign. */
static inline bool sp_worker_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op,
                                     char *why, size_t n)
{
    if (op->mb % lay->stages == stage)
        return false;
    snprintf(why, n, "micro-batch %d is on stage %d", op->mb, op->mb % lay->stages);
    return true;
}

#endif
