/*
 * WeiPipe, naive (Lin et al. 2025, section 3.1, figure 1): weights travel around a ring of workers,
 * and every worker takes one micro-batch forward through all chunks, then backward, then the next.
 * Two flows of weights go around, of which a turn uses one.
 *
 * A worker in its forwards waits for those in their backwards, whose turns are longer: the more the
 * longer a backward is.
 */
#include "starpipe/schedule.h"

static int turn(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int P = lay->stages, round = k / (2 * P), at = k % (2 * P), n = 0;

    if (k >= 2 * lay->micro_batches)
        return -1;
    if (at >= P)
        ops[n++] = (struct sp_op){.pass = SP_B, .mb = round, .chunk = 2 * P - 1 - at};
    else
        ops[n++] = (struct sp_op){.pass = SP_F, .mb = round, .chunk = at};
    if (at == P - 1)
        ops[n++] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return n;
}

extern const struct sp_schedule_def sp_schedule_weipipe_naive;
const struct sp_schedule_def sp_schedule_weipipe_naive = {
    .abi = SP_SCHEDULE_ABI,
    .name = "weipipe-naive",
    .summary = "weights travel around a ring, every worker takes its micro-batches one by one",
    .source = "WeiPipe (Lin et al. 2025), section 3.1, figure 1",
    .family = "weight-ring",
    .default_chunks = 1,
    .turn = turn,
    .emit = sp_ring_emit,
};
