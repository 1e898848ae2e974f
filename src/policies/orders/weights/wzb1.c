/*
 * WeiPipe zero bubble 1 (Lin et al. 2025, section 3.3, figure 3): interleaved WeiPipe with the input
 * gradient B and the weight gradient W of a chunk in turns of their own. A turn has two ops of about
 * the same length, and a worker sends three chunks on: forward weights, and a pair of chunks for
 * backwards, their weights in one turn and their gradients in the next.
 *
 * The paper draws it from turn 4 on and leaves the rest to the reader. Worked out: a backward has
 * two halves of C turns each, C = P chunks, chunks C-1 .. C/2 and C/2-1 .. 0, B and W of each in
 * two turns. A pair of rounds 2q, 2q+1 takes three phases of C turns each:
 *
 *   3q      forward of 2q          second half of 2q-1
 *   3q+1    forward of 2q+1        first half of 2q
 *   3q+2    second half of 2q      first half of 2q+1
 *
 * p = 4, worker 0: micro-batches a (round 0), b (1), c (2)
 *
 *   turn    0    1    2    3    4    5    6    7    8    9    10   11   12   13
 *           Fa0  Fa1  Fa2  Fa3  Fb0  Fb1  Fb2  Fb3  Ba1  Wa1  Ba0  Wa0  Fc0  Fc1  ...
 *                               Ba3  Wa3  Ba2  Wa2  Bb3  Wb3  Bb2  Wb2  Bb1  Wb1
 *
 * Makespan GP(f + b + w) + 2(P - 1) at f = b = w = 1: each worker is a turn of two ops, not three,
 * behind the one before. Activations: one and a half micro-batches, when a forward ends while the
 * backward of the micro-batch before it is half done.
 *
 * flow=line has the same turns, but weights and gradients come down the line of workers, see
 * families/weight_ring/line.h. It needs no pairs, so P may be odd and a worker may have V chunks,
 * C = PV. With an odd C the middle chunk's B ends the first half and its W begins the second.
 * Makespan GP(f + b + w) + 2(P - 1)/V. This is also the default flow if pairs cannot go around.
 */
#include "policies/families/weight_ring/flow.h"
#include "policies/orders/weights/rounds.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_flow_check(lay, SP_RING_PAIRS, why, n);

    if (err || lay->stages % 2 == 0 || sp_flow_layout(lay, SP_RING_PAIRS) == SP_RING_LINE)
        return err;
    snprintf(why, n,
             "goes around in pairs of chunks, of an even number of stages, not %d; "
             "use --stages %d, or flow=line",
             lay->stages, lay->stages + 1);
    return -EINVAL;
}

/* The op of a half of a round's backward, `at` turns into it: B and W alternate. */
static int half(int C, int round, int second, int at, struct sp_op *op)
{
    int u = second * C + at;

    *op = (struct sp_op){.pass = u % 2 ? SP_W : SP_B, .mb = round, .chunk = C - 1 - u / 2};
    return 1;
}

static int forward(int C, int round, int at, struct sp_op *ops)
{
    ops[0] = (struct sp_op){.pass = SP_F, .mb = round, .chunk = at};
    ops[1] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = round};
    return at == C - 1 ? 2 : 1;
}

static int turn(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int C = sp_chunks_of_model(lay), G = sp_rounds(lay), at = k % C, n = 0;
    int q = k / (3 * C), third = k / C % 3, even = 2 * q, odd = 2 * q + 1;

    /* the last third is the one with the second half of the last round's backward */
    if (k / C > (G % 2 ? 3 * (G / 2) + 2 : 3 * (G / 2)))
        return -1;
    if (third == 0) {
        if (even > 0 && even - 1 < G)
            n += half(C, even - 1, 1, at, &ops[n]);
        if (even < G)
            n += forward(C, even, at, &ops[n]);
    } else if (third == 1) {
        n += half(C, even, 0, at, &ops[n]);
        if (odd < G)
            n += forward(C, odd, at, &ops[n]);
    } else {
        n += half(C, even, 1, at, &ops[n]);
        if (odd < G)
            n += half(C, odd, 0, at, &ops[n]);
    }
    return n;
}

/* All turns of one worker plus the longest turn of each other one; unequal turns make it longer. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double P = lay->stages, G = lay->micro_batches / lay->stages;
    double both = sp_chunks_of_model(lay) % 2 ? b + w : 2 * fmax(b, w); /* halves of two rounds */
    double longest = G > 1 ? fmax(fmax(f + b, f + w), both) : fmax(f, fmax(b, w));

    if (lay->micro_batches % lay->stages)
        return -1;
    return G * P * (f + b + w) + (P - 1) * longest / lay->chunks;
}

const struct sp_schedule_def sp_schedule_wzb1 = {
    .abi = SP_SCHEDULE_ABI,
    .name = "wzb1",
    .summary =
        "weights travel around or down a line, gradients of inputs and of weights in own turns",
    .source = "WeiPipe (Lin et al. 2025), section 3.3, figure 3, worked out",
    .family = "weight-ring",
    .options = "flow,gradients",
    .default_chunks = 1,
    .check = check,
    .weight_ring = {.turn = turn, .layout = SP_RING_PAIRS},
    .makespan = makespan,
    .makespan_source =
        "GP(f+b+w) + (P-1) max(f+b, f+w, 2b, 2w)/v, met at f = b = w; from the turns of figure 3",
    .makespan_is = SP_LOWER_BOUND,
};
