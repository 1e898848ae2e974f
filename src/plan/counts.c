#include "plan/counts.h"
#include "sp_error.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int sp_counts_parse(const char *text, const struct sp_counts *want, int *counts)
{
    int *read = calloc((size_t)want->n, sizeof *read);
    const char *at = text;
    int64_t sum = 0;
    int n = 0, ret = -EINVAL;

    if (!read)
        return sp_error(ENOMEM, "no memory for %d counts", want->n);
    for (;; at++) {
        int len = (int)strcspn(at, ",");
        char *end;
        long v = strtol(at, &end, 10);

        if (end != at + len || *at < '0' || *at > '9' || v < want->least || v > INT_MAX) {
            sp_error(EINVAL, "%s '%s': '%.*s' is not a number of %s, %d or more", want->option,
                     text, len, at, want->unit, want->least);
            goto out;
        }
        if (n < want->n)
            read[n] = (int)v;
        n++;
        sum += v;
        at += len;
        if (!*at)
            break;
    }
    if (n != want->n)
        sp_error(EINVAL, "%s '%s' has %d counts, the schedule %d %s to fill", want->option, text, n,
                 want->n, want->parts);
    else if (sum != want->total)
        sp_error(EINVAL, "%s '%s' deals out %lld %s, %s has %d", want->option, text, (long long)sum,
                 want->unit, want->whole, want->total);
    else
        ret = 0;
    if (!ret)
        memcpy(counts, read, (size_t)want->n * sizeof *counts);
out:
    free(read);
    return ret;
}
