/*
 * WeiPipe zero bubble 2 (Lin et al. 2025, section 3.3, figure 4): every worker takes a micro-batch
 * through all chunks forward, then the input gradients B backward, then the weight gradients W, these in
 * the order of the forwards. A turn is one op, so workers are behind each other by no more than that.
 *
 * The paper draws one round. Worked out: in turn k, at = k mod P, forward weights and gradients of chunk
 * `at` are there and backward weights of chunk P-1-at, so that whatever a worker does next fits. The
 * gradient of a chunk sets out in turn P and is whole when worker P-1 has done its last W of it, in the
 * order of the forwards; its owner, where its optimizer is, takes it from there. Weights change between
 * steps only, so no micro-batch sees two versions of them.
 *
 * p = 4, m = 8, all passes of the same length; micro-batches as figures (forward), letters (B) and
 * capitals (W):
 *
 *   worker 0  0000aaaaAAAA4444eeeeEEEE...
 *   worker 1  .1111bbbbBBBB5555ffffFFFF..
 *   worker 2  ..2222ccccCCCC6666ggggGGGG.
 *   worker 3  ...3333ddddDDDD7777hhhhHHHH
 *
 * Makespan GP(f + b + w) + P - 1 at f = b = w = 1: next to no bubble over many rounds. Activations: one
 * micro-batch and, until its last W, the gradients that B leaves in it.
 */
#include "starpipe/schedule.h"
#include <math.h>

static int turn(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int P = lay->stages, G = lay->micro_batches / P, round = k / (3 * P), at = k % P;
    static const unsigned char passes[] = {SP_F, SP_B, SP_W};
    unsigned char pass = passes[k / P % 3];

    if (round >= G)
        return -1;
    ops[0] = (struct sp_op){.pass = pass, .mb = round, .chunk = pass == SP_B ? P - 1 - at : at};
    ops[1] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return pass == SP_F && at == P - 1 ? 2 : 1;
}

/* The longest way through turns and workers is at least all turns of one and the longest of each
 * other. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double P = lay->stages, G = lay->micro_batches / lay->stages;

    return G * P * (f + b + w) + (P - 1) * fmax(f, fmax(b, w));
}

extern const struct sp_schedule_def sp_schedule_wzb2;
const struct sp_schedule_def sp_schedule_wzb2 = {
    .abi = SP_SCHEDULE_ABI,
    .name = "wzb2",
    .summary =
        "weights travel around a ring, forwards, input gradients, weight gradients one by one",
    .source = "WeiPipe (Lin et al. 2025), section 3.3, figure 4, worked out",
    .family = "weight-ring",
    .default_chunks = 1,
    .turn = turn,
    .ring = SP_RING_STRAIGHT,
    .emit = sp_ring_emit,
    .makespan = makespan,
    .makespan_source =
        "GP(f+b+w) + (P-1) max(f,b,w), met at f = b = w; WeiPipe section 4: almost none",
    .makespan_is = SP_LOWER_BOUND,
};
