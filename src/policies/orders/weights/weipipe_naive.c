/*
 * WeiPipe, naive (Lin et al. 2025, section 3.1, figure 1): weights travel around a ring of workers,
 * and every worker takes one micro-batch forward through all chunks, then backward, then the next.
 * Two flows of weights go around, of which a turn uses one.
 *
 * p = 4, m = 8, a backward twice as long as a forward; forwards of micro-batches as figures, backwards
 * as letters (a is micro-batch 0):
 *
 *   worker 0  0000aaaaaaaa4.4.4.4eeeeeeee......
 *   worker 1  .1111.bbbbbbbb55.5.5.ffffffff....
 *   worker 2  ..2222..cccccccc666.6..gggggggg..
 *   worker 3  ...3333...dddddddd7777...hhhhhhhh
 *
 * Workers in their forwards wait for workers in their backwards, whose turns are longer. Makespan,
 * with B = b + w and G rounds: GP(f+B) + (P-1)(max(f,B) + (G-1)|f-B|). If a backward is twice a
 * forward, that is longer than the interleaved form from the third round on.
 */
#include "policies/orders/weights/rounds.h"
#include <math.h>

int sp_turn_one_by_one(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int C = sp_chunks_of_model(lay), round = k / (2 * C), at = k % (2 * C);

    if (round >= sp_rounds(lay))
        return -1;
    ops[0] = at < C ? (struct sp_op){.pass = SP_F, .mb = round, .chunk = at}
                    : (struct sp_op){.pass = SP_B, .mb = round, .chunk = 2 * C - 1 - at};
    ops[1] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return at == C - 1 ? 2 : 1;
}

/* Exact: between two micro-batches each worker waits for the difference of the turns. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double P = lay->stages, G = lay->micro_batches / lay->stages, back = b + w;

    if (lay->micro_batches % lay->stages)
        return -1;
    return G * P * (f + back) + (P - 1) * (fmax(f, back) + (G - 1) * fabs(f - back));
}

const struct sp_schedule_def sp_schedule_weipipe_naive = {
    .abi = SP_SCHEDULE_ABI,
    .name = "weipipe-naive",
    .summary = "weights travel around a ring, every worker takes its micro-batches one by one",
    .source = "WeiPipe (Lin et al. 2025), section 3.1, figure 1",
    .family = "weight-ring",
    .options = "gradients",
    .default_chunks = 1,
    .weight_ring.turn = sp_turn_one_by_one,
    .makespan = makespan,
    .makespan_source = "GP(f+B)+(P-1)(max(f,B)+(G-1)|f-B|), B=b+w, from the turns of figure 1",
};
