/*
 * The head of a model whose vocabulary all stages share (policies/families/vocabulary): what comes before its ops and
 * after them, in those of the last global stage or block.
 */
#ifndef SP_GRAPH_VOCABULARY_H
#define SP_GRAPH_VOCABULARY_H

#include "graphs/op.h"

/* The embedding of an op has the whole table, where the stage gathered it. */
void sp_vocabulary_tables(struct sp_op_ctx *c);

/* n(T,h) = norm(x) of the last layer's output, for all stages; *stats are the norm's, to be kept. */
void sp_vocabulary_input(struct sp_op_ctx *c, struct sp_tensor *x, struct sp_tensor **stats);

/* dx(T,h) = from the parts of dn that all stages left; the norm's gradient is added to, *stats die. Ends the life of
 * `released` bytes. */
void sp_vocabulary_gradient(struct sp_op_ctx *c, struct sp_tensor *x, struct sp_tensor **stats,
                            struct sp_tensor *dx, int64_t released);

#endif
