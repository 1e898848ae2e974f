/*
 * WeiPipe zero bubble 2 (Lin et al. 2025, section 3.3, figure 4): every worker takes a micro-batch
 * forward through all chunks, then runs the input gradients B backward, then the weight gradients W
 * in the order of the forwards. A turn is one op, so each worker is only one op behind the last.
 *
 * The paper draws one round and sends two chunks a turn. Worked out: for an op, worker r + 1 needs
 * the chunk that worker r had for the same op a turn before: forward weights, backward weights, or
 * a gradient. So one chunk a turn goes down the line, and the last worker drops it. The last worker
 * owns the model. It sends the weights of every op to worker 0. Gradients start at worker 0 and are
 * complete with the last worker's own W; it adds them up, and updates a chunk as soon as its last
 * gradient is complete (train --post-validation does without a barrier between steps). Chunks are
 * updated in the order of the next forwards, which it starts. Weights change between steps only, so
 * no micro-batch sees two versions of them.
 *
 * p = 4, m = 8, all passes of the same length; micro-batches as figures (forward), letters (B) and
 * capitals (W); the chunk that a worker has in the turn, F, B: weights, D: gradient:
 *
 *   worker 0  0000aaaaAAAA4444eeeeEEEE...     F0 F1 F2 F3 B3 B2 B1 B0 D0 D1 D2 D3 F0 ...
 *   worker 1  .1111bbbbBBBB5555ffffFFFF..        F0 F1 F2 F3 B3 B2 B1 B0 D0 D1 D2 D3 ...
 *   worker 2  ..2222ccccCCCC6666ggggGGGG.           F0 F1 F2 F3 B3 B2 B1 B0 D0 D1 D2 ...
 *   worker 3  ...3333ddddDDDD7777hhhhHHHH              F0 F1 F2 F3 B3 B2 B1 B0 D0 D1 ...
 *
 * With owner=each, worker (c + 1) mod p owns chunk c instead, so optimizer states are spread
 * evenly. Owners then send to worker 0, and the last worker sends to them, though they are not
 * neighbours.
 *
 * Makespan GP(f + b + w) + (P - 1)/V at f = b = w = 1 and V chunks a worker, above one: next to no bubble over many
 * rounds. Activations: one micro-batch and, until its last W, the gradients that B leaves in it.
 */
#include "policies/orders/weights/rounds.h"
#include "policies/refuse.h"
#include <math.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    return sp_refuse_word(lay, "owner", "last", "each", why, n);
}

static int owner(const struct sp_layout *lay, int chunk)
{
    return sp_option_is(lay, "owner", "each") ? (chunk + 1) % lay->stages : lay->stages - 1;
}

static int turn(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int C = sp_chunks_of_model(lay), round = k / (3 * C), at = k % C;
    static const unsigned char passes[] = {SP_F, SP_B, SP_W};
    unsigned char pass = passes[k / C % 3];

    if (round >= sp_rounds(lay))
        return -1;
    ops[0] = (struct sp_op){.pass = pass, .mb = round, .chunk = pass == SP_B ? C - 1 - at : at};
    ops[1] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return pass == SP_F && at == C - 1 ? 2 : 1;
}

/* The longest path through turns and workers has at least all turns of one worker and the longest
 * turn of each other one. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double P = lay->stages, G = lay->micro_batches / lay->stages;

    if (lay->micro_batches % lay->stages)
        return -1;
    return G * P * (f + b + w) + (P - 1) * fmax(f, fmax(b, w)) / lay->chunks;
}

const struct sp_schedule_def sp_schedule_wzb2 = {
    .abi = SP_SCHEDULE_ABI,
    .name = "wzb2",
    .summary = "weights travel down a line, forwards, input gradients, weight gradients one by one",
    .source = "WeiPipe (Lin et al. 2025), section 3.3, figure 4, worked out",
    .family = "weight-ring",
    .options = "owner,gradients",
    .default_chunks = 1,
    .check = check,
    .weight_ring = {.turn = turn, .layout = SP_RING_LINE, .owner = owner},
    .makespan = makespan,
    .makespan_source =
        "GP(f+b+w) + (P-1) max(f,b,w)/v, met at f = b = w; WeiPipe section 4: almost none",
    .makespan_is = SP_LOWER_BOUND,
};
