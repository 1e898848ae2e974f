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

/* The first of n whose op is `index` or a later one. */
static int first_from(const struct sp_evictions *e, int n,
                      int (*op_of)(const struct sp_evictions *e, int i), int index)
{
    int low = 0, high = n;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (op_of(e, middle) < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int op_of_leaving(const struct sp_evictions *e, int i)
{
    return e->leaving[i].leaves.index;
}

static int op_of_returning(const struct sp_evictions *e, int i)
{
    return e->leaving[e->returning[i]].returns.index;
}

int sp_stream_index(const struct sp_eviction *stream)
{
    return stream->leaves.index < 0 ? stream->returns.index : stream->leaves.index;
}

static int op_of_stream(const struct sp_evictions *e, int i)
{
    return sp_stream_index(&e->streams[i]);
}

int sp_evictions_leaving_from(const struct sp_evictions *e, int index)
{
    return first_from(e, e->n, op_of_leaving, index);
}

int sp_evictions_returning_from(const struct sp_evictions *e, int index)
{
    return first_from(e, e->n, op_of_returning, index);
}

int sp_evictions_streams_from(const struct sp_evictions *e, int index)
{
    return first_from(e, e->n_streams, op_of_stream, index);
}
