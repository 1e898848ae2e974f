/*
 * Rings of weights (WeiPipe, Lin et al. 2025, section 3): every worker keeps whole micro-batches,
 * where round g of worker r is micro-batch gP + r, and the P chunks of the model come by, a chunk a
 * turn. Worker r does in turn k + r what worker 0 does in turn k, on a micro-batch of its own.
 *
 * Three rings, all from worker r to worker r + 1:
 *   forward weights    in turn t worker r has chunk (t - r) mod P
 *   backward weights   from turn P on it has chunk (P - 1 - (t - r)) mod P, in turn P its own
 *   gradients D        with the backward weights; every worker adds its part before it passes D on
 * enum sp_ring_layout has other layouts of the backward rings. Chunk c belongs to worker (c + 1)
 * mod P. Before turn 0 the forward weights change places once, worker r with worker (1 - r) mod P;
 * after its last turn D returns to the owner.
 *
 * In the layout SP_RING_LINE nothing goes around (see line.h). There may be V times as many chunks,
 * C = PV, and turns that are shorter by the same factor.
 */
#ifndef SP_RING_H
#define SP_RING_H

#include "model/shape.h"
#include "policies/families/map.h"
#include "policies/plan.h"
#include <stdbool.h>

/* The turns of worker 0. */
struct sp_ring {
    int turns;          /* until its last backward */
    int forward_turns;  /* until its last forward */
    int *first;         /* [turns+1] first op of a turn */
    struct sp_op *ops;  /* [first[turns]] mb is the round */
    int *turn_of;       /* [passes of rounds and chunks, heads] -1: no such op */
    int rounds, chunks; /* G, the last one may have fewer micro-batches; C */
    int *owner;         /* [chunks] worker that keeps weights, gradient and optimizer state */
    enum sp_ring_layout layout;
    int node; /* workers in a row that are in the same turn */
};

enum sp_ring_payload { SP_RING_FORWARD, SP_RING_BACKWARD, SP_RING_GRADIENT };
enum { SP_RING_ITEMS = 3 }; /* that a worker has in a turn */
struct sp_ring_item {
    enum sp_ring_payload payload;
    int chunk;
};

/* Tabulates the turns of a schedule. 0; -ENOMEM; -EINVAL with the reason in why[n]: an op that the
 * family does not have, an op that comes twice or in a turn in which its weights are elsewhere, no
 * turn at all, or an owner that is no worker. */
int sp_ring_create(const struct sp_layout *lay, const struct sp_weight_ring_def *def,
                   struct sp_ring **ring, char *why, size_t n);
void sp_ring_destroy(void *ring);

/* The ring of a layout that the family placed. */
static inline const struct sp_ring *sp_ring_of(const struct sp_layout *lay)
{
    return lay->map->state;
}

/* Emits the turns of a worker, one after the other. */
void sp_ring_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);

/* The turn of worker 0 in which the op of a round runs, -1 if the schedule has none. */
int sp_ring_turn(const struct sp_ring *ring, const struct sp_op *op, int round);

/* Turns by which a worker is late: the nodes before its own. */
static inline int sp_ring_lag(const struct sp_ring *ring, int worker)
{
    return worker / ring->node;
}

/* The chunk whose forward weights worker r has in turn t, and the worker to which a chunk
 * belongs. */
int sp_ring_forward(int workers, int r, int t);
static inline int sp_ring_owner(const struct sp_ring *ring, int chunk)
{
    return ring->owner[chunk];
}

/* The turns after which forward weights are passed on are 0 .. last; those for backward weights and
 * gradients P .. last. */
int sp_ring_last_forward(const struct sp_ring *ring);
int sp_ring_last_backward(const struct sp_ring *ring);
/* True if the last of those turns returns every gradient to its owner; otherwise the last worker
 * that has a gradient sends it there. */
bool sp_ring_returns(const struct sp_ring *ring);

/* An item that worker r has in turn t: item 0 is the forward weights, the others are for backwards
 * (from turn P on). */
struct sp_ring_item sp_ring_item(const struct sp_ring *ring, int r, int t, int item);

/* True if a worker sums the gradients of an op separately and adds them to the travelling ones when
 * the op ends: if these are rounded, or the worker before is in the same turn. */
bool sp_ring_keeps_apart(const struct sp_plan *plan, const struct sp_shape *sh);

#endif
