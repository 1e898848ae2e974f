/*
 * Gradients that travel with the weights from worker to worker, in f32 or, rounded, in the type of
 * the run (codelets/travel.c): the buffers that a worker's op adds to, and their way to the chunk's
 * owner.
 */
#ifndef SP_RING_GRADIENTS_H
#define SP_RING_GRADIENTS_H

#include "graphs/op.h"
#include "policies/families/weight_ring/ring.h"

static inline const struct sp_ring *sp_graph_ring(const struct sp_graph *g)
{
    return sp_ring_of(&g->cfg.plan->layout);
}

/* Names the travelling tensor for an op of micro-batch mb. Around the ring there is one of a kind
 * at a time; down the line one per round, and of gradients one per journey
 * (policies/families/weight_ring/line.h). */
struct sp_tensor_id sp_ring_passing(const struct sp_graph *g, enum sp_tensor_kind kind, int mb,
                                    int chunk);

/* For struct sp_graph_family: makes a gradient that begins to travel from a stage. */
void sp_ring_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

/* Returns the buffers that an op adds its gradients to: those of its own blocks, the travelling
 * ones, or, if an op sums by itself, f32 buffers of its own. `own`[blocks of the chunk] has room
 * for them, and is used unless they are the travelling ones. */
struct sp_tensor *const *sp_ring_gradients_begin(struct sp_op_ctx *c, const struct sp_op *op,
                                                 struct sp_tensor **own);

/* Adds what the op summed to the travelling gradient, which must have arrived only now. Around the
 * ring the owner takes the travelling sum and sends it out again as zeros, so that no sum of more
 * than one round is rounded. */
void sp_ring_gradients_end(struct sp_op_ctx *c, const struct sp_op *op, struct sp_tensor **own);

/*
 * A gradient has reached its owner. Down the line, and if it was rounded, it is added to the
 * owner's; around the ring in f32 it is the owner's. Gradients from workers before the owner are
 * added with the owner's next op of that round. Gradients from workers that are turns behind it are
 * added when the next one comes, a round later, or by sp_ring_gradients_flush at the end of the
 * step. So the owner's program does not wait.
 */
void sp_ring_gradients_return(struct sp_graph *g, struct sp_stage *owner,
                              const struct sp_tensor_id *id);

void sp_ring_gradients_flush(struct sp_graph *g, struct sp_stage *owner);

#endif
