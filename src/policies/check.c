#include "policies/check.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

int sp_check_whole(const struct sp_layout *lay, char *why, size_t n)
{
    if (lay->chunks != 1) {
        snprintf(why, n, "has 1 chunk per stage, not %d; use --chunks 1", lay->chunks);
        return -EINVAL;
    }
    if (lay->slices != 1) {
        snprintf(why, n, "runs whole sequences, not %d slices; use --slices 1", lay->slices);
        return -EINVAL;
    }
    return 0;
}

int sp_check_sliced(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 1;
    return sp_refuse_chunks(lay, &fit, why, n);
}
