/* The parameter blocks that a stage holds: weights, gradients, the optimizer's state. */
#ifndef SP_BLOCKS_H
#define SP_BLOCKS_H

#include "graphs/graph.h"

/* Creates the blocks of a stage of this process, or the parts of them that it updates. 0, -ENOMEM,
 * or -EINVAL after one line. */
int sp_blocks_create(struct sp_graph *g, struct sp_stage *st);
void sp_blocks_destroy(struct sp_stage *st);

#endif
