/*
 * Weights and gradients down the line of workers. `node` workers in a row are in the same turn
 * (TawPipe, Wu and Chen 2025: inside a node all need the same chunk at once, and a node is a turn
 * behind the one before).
 *
 * Weights of a chunk, for an op of a round:
 *   the owner             keeps them
 *   worker 0, and the first worker of the owner's node, get them from the owner
 *   any other worker gets them from the worker before, which had them for the same op
 * Gradients of a chunk and round:
 *   the owner adds its own to those of its blocks
 *   those of the others make two journeys from worker to worker, and then go to the owner:
 *   0   of all workers up to the end of the owner's node
 *   1   of all workers after that
 *
 * So with K nodes a chunk goes from one node to another K - 1 times for each pass, and inside of
 * all nodes together P - K times: no worker gets what it has, or passes on what no other needs.
 */
#ifndef SP_RING_LINE_H
#define SP_RING_LINE_H

#include "policies/families/weight_ring/ring.h"
#include "policies/lowering/tensor.h"

/* Workers that have a micro-batch in a round: the first so many. */
static inline int sp_line_workers(const struct sp_layout *lay, int round)
{
    int left = lay->micro_batches - round * lay->stages;

    return left < lay->stages ? left : lay->stages;
}

/* The worker that sends a worker the weights of a chunk; the worker itself if it owns them. */
static inline int sp_line_source(const struct sp_ring *ring, int worker, int chunk)
{
    int owner = sp_ring_owner(ring, chunk);
    bool first = worker % ring->node == 0;

    if (worker == owner || worker == 0 ||
        (first && sp_ring_lag(ring, worker) == sp_ring_lag(ring, owner)))
        return owner;
    return worker - 1;
}

/* The journey, 0 or 1, of a chunk's gradient that a worker other than the owner adds to. */
static inline int sp_line_journey(const struct sp_ring *ring, int worker, int chunk)
{
    return sp_ring_lag(ring, worker) > sp_ring_lag(ring, sp_ring_owner(ring, chunk));
}

/* The worker next to this one on the same journey among the first `workers`, by a step of 1 or -1;
 * -1: the journey ends, or begins, here. */
static inline int sp_line_next(const struct sp_ring *ring, int worker, int chunk, int step,
                               int workers)
{
    int next = worker + step;

    if (next == sp_ring_owner(ring, chunk))
        next += step;
    if (next < 0 || next >= workers ||
        sp_line_journey(ring, next, chunk) != sp_line_journey(ring, worker, chunk))
        return -1;
    return next;
}

/* The travelling gradient of a round and journey. */
static inline struct sp_tensor_id sp_line_gradient(const struct sp_layout *lay, int worker, int mb,
                                                   int chunk)
{
    return (struct sp_tensor_id){
        .kind = SP_TENSOR_D,
        .slice = (unsigned short)sp_line_journey(sp_ring_of(lay), worker, chunk),
        .mb = mb / lay->stages,
        .at = chunk};
}

#endif
