/* Sums the gradients of blocks that more than one stage holds, before the norm and the update. */
#ifndef SP_GRADIENTS_H
#define SP_GRADIENTS_H

#include "graphs/graph.h"
#include "policies/lowering/action.h"

/* Does the REDUCE of one of two replicas in a pipeline. Both replicas add the two gradients in the
 * same order. */
void sp_gradients_reduce(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* Sums a block's gradient, complete in this pipeline, with those of the other pipelines, into the
 * block's state. All pipelines call it for the same blocks in the same order. */
void sp_gradients_share(struct sp_graph *g, struct sp_stage *st, struct sp_block *b);

/* Does this for all blocks of this process for which it was not done ahead, and gives back
 * buffers. */
void sp_gradients_end(struct sp_graph *g);

#endif
