/*
 * ZeRO-1 (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
 * section 5.1): pipelines side by side have the same weights, so each keeps the optimizer's state of a part of
 * every block alone, and updates that.
 *
 *   a step begins          gather: the parts of the weights, from the pipelines that updated them
 *   a gradient is whole    scatter: its parts, to the pipelines that update them, who add up (gradients.c)
 *
 * Of P parameters a pipeline of D sends (D - 1)/D P elements of gradients and as many of weights in a step. Ops read
 * weights and add to gradients whole; from a scatter to the next gather a block is cut in parts.
 */
#ifndef SP_ZERO_H
#define SP_ZERO_H

#include "graphs/weights/gathered.h"
#include "graphs/graph.h"

enum { SP_SHARED_W, SP_SHARED_G };

/*
 * Makes weights and gradient of a block of which first and n are set, cut, with this pipeline's part of them as
 * its state; first and n are that part's from then on. 0, or -errno after one line.
 */
int sp_zero_create(struct sp_graph *g, struct sp_block *b);
void sp_zero_destroy(struct sp_block *b);

/* From here on its state is used; nothing to do where that is whole. */
void sp_zero_cut(struct sp_block *b);

/* From here on the blocks of this process are whole: the weights gathered, the gradients zero. */
void sp_zero_begin(struct sp_graph *g);

#endif
