/*
 * Gradients of weights that travel from worker to worker with them, in f32 or, rounded, in the type of the run
 * (codelets/travel.c): what an op of a worker adds to, and how that gets to the owner of the chunk.
 */
#ifndef SP_RING_GRADIENTS_H
#define SP_RING_GRADIENTS_H

#include "graphs/op.h"
#include "policies/families/weight_ring/ring.h"

static inline const struct sp_ring *sp_graph_ring(const struct sp_graph *g)
{
    return sp_ring_of(&g->cfg.plan->layout);
}

/* What comes by for an op of micro-batch mb: around the ring there is one of a kind at a time, down the line one a
 * round, of gradients one a journey (policies/families/weight_ring/line.h). */
struct sp_tensor_id sp_ring_passing(const struct sp_graph *g, enum sp_tensor_kind kind, int mb,
                                    int chunk);

/* As struct sp_graph_family has it: a gradient that sets out from a stage. */
void sp_ring_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

/* What an op adds its gradients to: those of its own blocks, what travels, or, where they are kept apart, f32 of its
 * own; in `own`[blocks of the chunk], but where it is what travels. */
struct sp_tensor *const *sp_ring_gradients_begin(struct sp_op_ctx *c, const struct sp_op *op,
                                                 struct sp_tensor **own);

/* What the op added goes to what travels, which only now has to be here. Around the ring the owner takes what that has
 * gathered, so that no sum of more than a round is rounded, and it sets out again as zeros. */
void sp_ring_gradients_end(struct sp_op_ctx *c, const struct sp_op *op, struct sp_tensor **own);

/*
 * A gradient that is with its owner: down the line, and where it was rounded, it is added to his; around the ring it is
 * his. What comes from workers before him is added with his own op of that round; from those who are turns behind him
 * when the next one comes, a round later, or by sp_ring_gradients_flush at the end of the step: his program does not
 * wait.
 */
void sp_ring_gradients_return(struct sp_graph *g, struct sp_stage *owner,
                              const struct sp_tensor_id *id);

void sp_ring_gradients_flush(struct sp_graph *g, struct sp_stage *owner);

#endif
