#include "policies/lowering/evictions.h"
#include <errno.h>
#include <stdlib.h>

struct sp_evictions *sp_evictions_new(int stages)
{
    return calloc((size_t)stages, sizeof(struct sp_evictions));
}

int sp_evictions_reserve(struct sp_evictions *e, int n)
{
    e->leaving = calloc((size_t)n + 1, sizeof *e->leaving);
    e->returning = calloc((size_t)n + 1, sizeof *e->returning);
    e->n = n;
    return e->leaving && e->returning ? 0 : -ENOMEM;
}

void sp_evictions_destroy(struct sp_evictions *e, int stages)
{
    for (int s = 0; e && s < stages; s++) {
        free(e[s].leaving);
        free(e[s].returning);
    }
    free(e);
}

int sp_evictions_leaving_from(const struct sp_evictions *e, int index)
{
    int low = 0, high = e->n;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (e->leaving[middle].leaves.index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int sp_evictions_returning_from(const struct sp_evictions *e, int index)
{
    int low = 0, high = e->n;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (e->leaving[e->returning[middle]].returns.index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
