/*
 * TawPipe (Wu and Chen 2025, arXiv 2511.09741): workers keep their micro-batches and weights
 * travel, as in WeiPipe, but all workers of a node need the same chunk in the same turn, and each
 * node is a turn behind the one before. A worker takes a micro-batch forward through all chunks,
 * then back, then the next one. With K nodes of N workers, worker c / K mod N of node c mod K owns
 * chunk c: its weights, gradient and optimizer state.
 *
 * p = 4, node=2, m = 8, a backward twice as long as a forward; forwards of micro-batches as figures, backwards as
 * letters (a is micro-batch 0):
 *
 *   node 0   worker 0  0000aaaaaaaa4444eeeeeeee..
 *            worker 1  1111bbbbbbbb5555ffffffff..
 *   node 1   worker 2  .2222.cccccccc6666gggggggg
 *            worker 3  .3333.dddddddd7777hhhhhhhh
 *
 * Makespan GP(f + B) + (K-1) max(f, B)/V, B = b + w, with G > 1 rounds and V chunks a worker: no
 * node waits for the node behind. It is less if weights are sent on before an op ends.
 *
 * A chunk crosses between nodes K-1 times for a pass of a round, and travels P-K times inside
 * nodes, see families/weight_ring/line.h. That is 3G(K-1)P chunks a step between nodes; a ring
 * sends 3(G+1)KP. In the paper a chunk's owner sends it to every node, which broadcasts it. Here
 * nodes and workers pass it on, with as many messages but evenly spread over the senders.
 */
#include "policies/families/weight_ring/node.h"
#include "policies/orders/weights/rounds.h"
#include <math.h>

/* Workers of a node: by default at most eight, the usual number of GPUs of a node. */
static int node(const struct sp_layout *lay)
{
    int most = lay->stages < 8 ? lay->stages : 8;

    while (lay->stages % most)
        most--;
    return sp_node_option(lay, most);
}

static int owner(const struct sp_layout *lay, int chunk)
{
    int n = node(lay), nodes = lay->stages / n;

    return chunk % nodes * n + chunk / nodes % n;
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double P = lay->stages, G = lay->micro_batches / lay->stages, back = b + w;
    double nodes = P / node(lay);

    if (lay->micro_batches % lay->stages)
        return -1;
    return G * P * (f + back) + (nodes - 1) * fmax(f, back) / lay->chunks;
}

const struct sp_schedule_def sp_schedule_tawpipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "tawpipe",
    .summary = "weights travel from node to node, whose workers are in the same turn",
    .source = "TawPipe (Wu and Chen 2025), arXiv 2511.09741; wuhouming/TawPipe",
    .family = "weight-ring",
    .options = "gradients,node",
    .default_chunks = 1,
    .check = sp_node_check,
    .weight_ring = {.turn = sp_turn_one_by_one,
                    .layout = SP_RING_LINE,
                    .owner = owner,
                    .node = node},
    .makespan = makespan,
    .makespan_source = "GP(f+B)+(K-1)max(f,B)/v, B=b+w, K nodes, from the turns",
    .makespan_is = SP_UPPER_BOUND,
};
