/* Of the layerwise families, what those share whose stages begin their ops together (aligned.c). */
#ifndef SP_GRAPH_LAYERWISE_H
#define SP_GRAPH_LAYERWISE_H

#include "graphs/families/chunk.h"
#include "graphs/families/family.h"

/* The op at a place of a stage's program; sp_op_close ends it. */
void sp_layerwise_open(struct sp_graph *g, struct sp_stage *st, int index, struct sp_op_ctx *c);

/* What comes before the first layer of a pass and after the last one: x or dx that came, or embedding or head. */
void sp_layerwise_begin(struct sp_op_ctx *c);
void sp_layerwise_end(struct sp_op_ctx *c);

/* The layer that a pass comes to as number `step`, and what it writes: x or dx, where the next layer or stage reads
 * it. */
int sp_layerwise_layer(const struct sp_op_ctx *c, int step);
struct sp_tensor *sp_layerwise_output(struct sp_op_ctx *c, int i);
/* Whether that is the head's input. */
bool sp_layerwise_to_head(const struct sp_op_ctx *c, int i);

/* struct sp_graph_family. */
int sp_layerwise_create(struct sp_graph *g);
void sp_layerwise_destroy(struct sp_graph *g);
void sp_layerwise_discard(struct sp_graph *g);

#endif
