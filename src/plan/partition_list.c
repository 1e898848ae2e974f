#include "plan/partition.h"
#include "sp_error.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int sp_partition_parse(const char *text, int layers, int globals, int *counts)
{
    int *read = calloc((size_t)globals, sizeof *read);
    const char *at = text;
    int64_t sum = 0;
    int n = 0, ret = -EINVAL;

    if (!read)
        return sp_error(ENOMEM, "no memory for a partition of %d stages", globals);
    for (;; at++) {
        int len = (int)strcspn(at, ",");
        char *end;
        long v = strtol(at, &end, 10);

        if (end != at + len || *at < '0' || *at > '9' || v < 1 || v > INT_MAX) {
            sp_error(EINVAL, "partition '%s': '%.*s' is not a number of layers, 1 or more", text,
                     len, at);
            goto out;
        }
        if (n < globals)
            read[n] = (int)v;
        n++;
        sum += v;
        at += len;
        if (!*at)
            break;
    }
    if (n != globals)
        sp_error(EINVAL, "partition '%s' has %d counts, the schedule %d stages and chunks to fill",
                 text, n, globals);
    else if (sum != layers)
        sp_error(EINVAL, "partition '%s' deals out %lld layers, the model has %d", text,
                 (long long)sum, layers);
    else
        ret = 0;
    if (!ret)
        memcpy(counts, read, (size_t)globals * sizeof *counts);
out:
    free(read);
    return ret;
}
