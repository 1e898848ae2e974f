/* The functions of the layerwise families that others use: aligned.c, whose stages begin ops
 * together, and stashing.c, whose stages update their weights within a step. */
#ifndef SP_GRAPH_LAYERWISE_H
#define SP_GRAPH_LAYERWISE_H

#include "graphs/families/chunk.h"
#include "graphs/families/family.h"

/* Opens the op at a place of a stage's program; sp_op_close ends it. */
void sp_layerwise_open(struct sp_graph *g, struct sp_stage *st, int index, struct sp_op_ctx *c);

/* Expand what comes before the first layer of a pass and after the last one: received x or dx, or
 * embedding or head. */
void sp_layerwise_begin(struct sp_op_ctx *c);
void sp_layerwise_end(struct sp_op_ctx *c);

/* The tensor that a pass writes at layer i: x or dx, in a buffer for the next layer or stage. */
struct sp_tensor *sp_layerwise_output(struct sp_op_ctx *c, int i);
/* True if this output is the head's input. */
bool sp_layerwise_to_head(const struct sp_op_ctx *c, int i);

/* Sets the weights of an op whose stage has versions of them (stashing.c): a forward reads the
 * newest of its stage or late ones, a backward those of its forward. */
void sp_stashing_use(struct sp_op_ctx *c);

/* For struct sp_graph_family. */
int sp_layerwise_create(struct sp_graph *g);
void sp_layerwise_destroy(struct sp_graph *g);
void sp_layerwise_discard(struct sp_graph *g);

#endif
