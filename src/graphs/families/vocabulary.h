/*
 * The head of a model whose vocabulary all stages split (policies/families/vocabulary): the work
 * before and after its ops, done in ops of the last global stage or block.
 */
#ifndef SP_GRAPH_VOCABULARY_H
#define SP_GRAPH_VOCABULARY_H

#include "graphs/op.h"

/* Gives an op the gathered table for its embedding, if the stage gathered it. */
void sp_vocabulary_tables(struct sp_op_ctx *c);

/* Computes n(T,h) = norm(x) of the last layer's output, for all stages; *stats are the norm's
 * statistics, to be kept. */
void sp_vocabulary_input(struct sp_op_ctx *c, struct sp_tensor *x, struct sp_tensor **stats);

/* Computes dx(T,h) from the parts of dn that all stages left; adds the norm's gradient and drops
 * *stats. Ends the life of `released` bytes. */
void sp_vocabulary_gradient(struct sp_op_ctx *c, struct sp_tensor *x, struct sp_tensor **stats,
                            struct sp_tensor *dx, int64_t released);

#endif
