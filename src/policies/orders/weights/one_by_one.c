#include "policies/orders/weights/one_by_one.h"
#include "policies/orders/weights/rounds.h"

int sp_turn_one_by_one(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int C = sp_chunks_of_model(lay), round = k / (2 * C), at = k % (2 * C), n = 0;

    if (round >= sp_rounds(lay))
        return -1;
    if (at >= C)
        ops[n++] = (struct sp_op){.pass = SP_B, .mb = round, .chunk = 2 * C - 1 - at};
    else
        ops[n++] = (struct sp_op){.pass = SP_F, .mb = round, .chunk = at};
    if (at == C - 1)
        ops[n++] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return n;
}
