#include "policies/families/sharded/shards.h"

int sp_shards_prefetch(const struct sp_program *prog, int k)
{
    int next = k + 1;

    if (!sp_shards_change(prog, k))
        return -1;
    while (next < prog->n && prog->ops[next].chunk == prog->ops[k].chunk)
        next++;
    if (next == prog->n || (k > 0 && prog->ops[next].chunk == prog->ops[k - 1].chunk))
        return -1;
    return next;
}
