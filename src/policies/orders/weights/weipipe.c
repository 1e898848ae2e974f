/*
 * WeiPipe, interleaved (Lin et al. 2025, section 3.2, figure 2): weights travel around a ring of
 * workers, a chunk a turn, and every worker keeps its micro-batches. In a turn a worker does the
 * backward of a chunk of one micro-batch and the forward of a chunk of its next one.
 *
 * p = 4, m = 8, a backward twice as long as a forward; forwards of micro-batches as figures, backwards
 * as letters (a is micro-batch 0):
 *
 *   worker 0  0000aa4aa4aa4aa4ee.ee.ee.ee......
 *   worker 1  .1111..bb5bb5bb5bb5ffff.ff.ff....
 *   worker 2  ..2222....cc6cc6cc6cc6gggggg.gg..
 *   worker 3  ...3333......dd7dd7dd7dd7hhhhhhhh
 *
 * Makespan (GP + P - 1)(f + b + w) with G >= 2 rounds, that of 1F1B with GP micro-batches: each
 * worker is behind the one before it by the longest turn, which has both a forward and a backward.
 * With one round no turn has both. Every worker keeps the activations of a whole micro-batch, P
 * chunks.
 *
 * Around the ring each worker sends 3(G+1)P chunks: it also forwards weights that no op needs, and
 * worker 0 forwards chunks until the last worker is done. With flow=line nothing goes around: for
 * an op, worker r + 1 needs the chunk that worker r had for the same op, so 3G(P-1) chunks go down
 * the line for each, see families/weight_ring/line.h, and a worker stops after its last op. With
 * node=N as well, N workers in a row are in the same turn, and each node is a turn behind the one
 * before.
 *
 * On a line the chunks need not fit a way around, so a worker may have V of them. Turns are V times
 * shorter, and so is the delay between workers: makespan (GP + (P-1)/V)(f + b + w).
 */
#include "policies/families/weight_ring/flow.h"
#include "policies/families/weight_ring/node.h"
#include "policies/orders/weights/rounds.h"
#include <math.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_flow_check(lay, SP_RING_REVERSED, why, n);

    return err ? err : sp_node_check(lay, why, n);
}

static int node(const struct sp_layout *lay)
{
    return sp_node_option(lay, 1);
}

static int turn(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    int C = sp_chunks_of_model(lay), G = sp_rounds(lay), n = 0;

    if (k >= (G + 1) * C)
        return -1;
    if (k >= C)
        ops[n++] = (struct sp_op){.pass = SP_B, .mb = k / C - 1, .chunk = C - 1 - k % C};
    if (k < G * C)
        ops[n++] = (struct sp_op){.pass = SP_F, .mb = k / C, .chunk = k % C};
    if (k < G * C && k % C == C - 1)
        ops[n++] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = k / C};
    return n;
}

/* The longest path through turns and workers: all turns of one, and the longest turn of the
 * others. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double P = lay->stages, G = lay->micro_batches / lay->stages, nodes = P / node(lay);

    if (lay->micro_batches % lay->stages)
        return -1;
    return G * P * (f + b + w) + (nodes - 1) * (G > 1 ? f + b + w : fmax(f, b + w)) / lay->chunks;
}

const struct sp_schedule_def sp_schedule_weipipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "weipipe",
    .summary = "weights travel around a ring, forwards and backwards of two micro-batches in turns",
    .source = "WeiPipe (Lin et al. 2025), section 3.2, figure 2; Gvilenius/weipipe",
    .family = "weight-ring",
    .options = "flow,gradients,node",
    .variants = "flow=line",
    .default_chunks = 1,
    .check = check,
    .weight_ring = {.turn = turn, .node = node},
    .makespan = makespan,
    .makespan_source =
        "(GP+(P-1)/v)(f+b+w), WeiPipe section 4: 1F1B's; one round: P(f+b+w)+(P-1) max(f, b+w)/v",
};
