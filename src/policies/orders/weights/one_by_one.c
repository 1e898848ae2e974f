#include "policies/orders/weights/one_by_one.h"

int sp_turn_one_by_one(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int P = lay->stages, round = k / (2 * P), at = k % (2 * P), n = 0;

    if (round * P >= lay->micro_batches)
        return -1;
    if (at >= P)
        ops[n++] = (struct sp_op){.pass = SP_B, .mb = round, .chunk = 2 * P - 1 - at};
    else
        ops[n++] = (struct sp_op){.pass = SP_F, .mb = round, .chunk = at};
    if (at == P - 1)
        ops[n++] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return n;
}
