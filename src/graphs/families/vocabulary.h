/*
 * The head of a layerwise model whose vocabulary all stages share (policies/families/vocabulary): what comes before its
 * ops and after them, in those of the last global stage.
 */
#ifndef SP_GRAPH_VOCABULARY_H
#define SP_GRAPH_VOCABULARY_H

#include "graphs/op.h"

/* The embedding of an op has the whole table, where the stage gathered it. */
void sp_vocabulary_tables(struct sp_op_ctx *c);

/* n(T,h) = norm(x) of the chunk's output x, for all stages; x and the norm's statistics stay. */
void sp_vocabulary_input(struct sp_op_ctx *c);

/* dx(T,h) = from the parts of dn that all stages left; x dies, and the norm's gradient is added to. */
void sp_vocabulary_gradient(struct sp_op_ctx *c, starpu_data_handle_t dx);

#endif
