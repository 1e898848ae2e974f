#include "policies/lowering/evictions.h"
#include <errno.h>
#include <stdlib.h>

struct sp_evictions *sp_evictions_new(int stages)
{
    return calloc((size_t)stages, sizeof(struct sp_evictions));
}

int sp_evictions_reserve(struct sp_evictions *e, int n, int streams)
{
    e->leaving = calloc((size_t)n + 1, sizeof *e->leaving);
    e->returning = calloc((size_t)n + 1, sizeof *e->returning);
    e->streams = calloc((size_t)streams + 1, sizeof *e->streams);
    e->n = n;
    e->n_streams = streams;
    return e->leaving && e->returning && e->streams ? 0 : -ENOMEM;
}

void sp_evictions_destroy(struct sp_evictions *e, int stages)
{
    for (int s = 0; e && s < stages; s++) {
        free(e[s].leaving);
        free(e[s].returning);
        free(e[s].streams);
    }
    free(e);
}
