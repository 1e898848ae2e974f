#include "policies/orders/interleave.h"

/*
 * The group size with the most groups of which the last still has at least p micro-batches. It is p
 * if p divides m, and otherwise that of torch.distributed.pipelining, if that accepts m: m / (m / p
 * rounds). No such grouping costs time.
 */
static int default_group(int p, int m)
{
    for (int rounds = m / p; rounds > 1; rounds--) {
        int group = (m + rounds - 1) / rounds;

        if (m - (rounds - 1) * group >= p)
            return group;
    }
    return m;
}

int sp_interleave_group(const struct sp_layout *lay, int *ok)
{
    return sp_layout_option_int(lay, "group", default_group(lay->stages, lay->micro_batches), ok);
}

struct sp_slot sp_interleave_forward(const struct sp_layout *lay, int group, int k)
{
    int m = lay->micro_batches, first, size, at;

    if (group > m)
        group = m;
    /* micro-batches before the group: all groups before it are whole */
    first = k / (group * lay->chunks) * group;
    size = m - first < group ? m - first : group;
    at = k - first * lay->chunks;
    return (struct sp_slot){.mb = first + at % size, .chunk = at / size, .size = size};
}

struct sp_slot sp_interleave_backward(const struct sp_layout *lay, int group, int k)
{
    struct sp_slot slot = sp_interleave_forward(lay, group, k);

    slot.chunk = lay->chunks - 1 - slot.chunk;
    return slot;
}
