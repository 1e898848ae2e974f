/* The initial values of parameters. */
#ifndef SP_INITIAL_H
#define SP_INITIAL_H

#include "graphs/graph.h"
#include "model/files/weights.h"

/*
 * part(b->n) = initial values of this process's part of a block: from `file`, or drawn from the
 * seed if that is NULL; zero past the block's end. 0 or -errno.
 */
int sp_initial_block(const struct sp_graph *g, const struct sp_block *b,
                     const struct sp_st_file *file, float *part);

/*
 * Draws every local block and clears its gradients and moments, on cores. Each worker draws the
 * blocks of its stages with its team: so all cores draw, and memory is near the core that touches
 * it first. 0 or -errno.
 */
int sp_initial_values(struct sp_graph *g);

#endif
