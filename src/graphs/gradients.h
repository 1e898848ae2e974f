/* Gradients of blocks that more than one stage holds, summed before the norm and the update. */
#ifndef SP_GRADIENTS_H
#define SP_GRADIENTS_H

#include "graphs/graph.h"
#include "policies/lowering/action.h"

/* A REDUCE of one of two replicas in a pipeline: both add up theirs in the same order. */
void sp_gradients_reduce(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* That of a block, whole in this pipeline, with those of the other pipelines: its state has the sum then. All
 * call it for the same blocks in the same order. */
void sp_gradients_share(struct sp_graph *g, struct sp_stage *st, struct sp_block *b);

/* All blocks of this process that were not shared ahead; gives their buffers back. */
void sp_gradients_end(struct sp_graph *g);

#endif
