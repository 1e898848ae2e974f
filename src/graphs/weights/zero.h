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

/*
 * A parameter block in one buffer that is registered as a whole and as the parts that stages or
 * pipelines hold. At any time either the whole or the parts are in use; the sink switches between
 * the two views without a copy.
 */

struct sp_gathered {
    struct sp_tensor *whole; /* n elements */
    struct sp_tensor **part; /* [parts] n / parts elements, the first n % parts of them one more */
    int parts;
    bool cut;
    void *memory;
};

/* n is at least the number of parts. The buffer starts as zeros. 0 or -ENOMEM. */
int sp_gathered_create(struct sp_sink *s, struct sp_gathered *w, size_t n, int parts,
                       size_t elem_bytes);
/* Waits for the tasks that use it. */
void sp_gathered_destroy(struct sp_gathered *w);

/* Switch to the parts, or to the whole; no effect if that is the current view. */
void sp_gathered_cut(struct sp_gathered *w);
void sp_gathered_join(struct sp_gathered *w);

size_t sp_gathered_bytes(const struct sp_gathered *w);

#endif
