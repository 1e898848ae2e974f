/*
 * ZeRO-1 (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
 * Models", section 5.1): data-parallel pipelines have the same weights, so each keeps the
 * optimizer's state of one part of every block only, and updates that part.
 *
 *   a step begins           gather: the parts of the weights, from the pipelines that updated them
 *   a gradient is complete  scatter: its parts, to the pipelines that update them, which add up
 *                           (step.c)
 *
 * With D pipelines and P parameters, a pipeline sends (D - 1)/D P elements of gradients in a step,
 * and as many of weights. Ops read gathered weights and add to gathered gradients; from a scatter
 * to the next gather a block is used in parts.
 */
#ifndef SP_ZERO_H
#define SP_ZERO_H

#include "graphs/weights/gathered.h"
#include "graphs/graph.h"

enum { SP_SHARED_W, SP_SHARED_G };

/*
 * Creates weights and gradient of a block whose first and n are set, switched to parts; this
 * pipeline's part becomes the block's state, and first and n describe that part from then on. 0, or
 * -errno after one line.
 */
int sp_zero_create(struct sp_graph *g, struct sp_block *b);
void sp_zero_destroy(struct sp_block *b);

/* Switches to the parts, because the block's state is used next; no effect without ZeRO. */
void sp_zero_cut(struct sp_block *b);

/* Gathers the weights of this process's blocks and clears their gradients, for ops to use. */
void sp_zero_begin(struct sp_graph *g);

#endif
