/*
 * Embedding and head when the members of a stage split the vocabulary and the position table
 * (shares.h). A member knows a token as a row of its own part, or as a token elsewhere
 * (sp_graph_tokens).
 *
 *   embedding   { rows of both tables that are here, 0 elsewhere } of each share, reduce
 *   head        n = norm(x), gather;
 *               { log-sum-exp and target's logit of the rows that are here }, to all members;
 *               { dn, gradient of the table }, reduce, dx
 */
#ifndef SP_TENSOR_ENDS_H
#define SP_TENSOR_ENDS_H

#include "graphs/tensor/shares.h"

/* x(T,h) = embedding of a micro-batch or slice, the one with number `tokens` in the step. */
void sp_tensor_embed(struct sp_op_ctx *c, int tokens, struct sp_tensor *x);

/* Adds to the gradients of the tables; dx stays. */
void sp_tensor_embed_gradient(struct sp_op_ctx *c, int tokens, struct sp_tensor *dx);

/* Takes a buffer for the logits of a share of the tokens and `rows` rows of the table; NULL: logits
 * are not kept. */
struct sp_tensor *sp_tensor_logits(struct sp_op_ctx *c, int rows);

/* Sends this member's statistics of a share's logits, of[this member], to all members, and receives
 * those of the others in of[]. */
void sp_tensor_share_stats(struct sp_op_ctx *c, struct sp_tensor **of);

/* Computes dx(T,h) from x; adds the gradients of the final norm and the table, and the loss of this
 * member's tokens. */
void sp_tensor_head(struct sp_op_ctx *c, int tokens, struct sp_tensor *x, struct sp_tensor *dx,
                    int64_t released);

#endif
