/*
 * Embedding and head whose vocabulary the members of a stage share (shares.h). Tokens are known as rows of what a member
 * has, or as elsewhere (sp_graph_tokens).
 *
 *   embedding   { rows of the table that are here, 0 elsewhere } of each share, reduce; positions with a member's own
 *   head        n = norm(x), gather; { log-sum-exp and target's logit of the rows that are here }, to all members;
 *               { dn, gradient of the table }, reduce, dx
 */
#ifndef SP_TENSOR_ENDS_H
#define SP_TENSOR_ENDS_H

#include "graphs/tensor/shares.h"

/* x(T,h) =, of the tokens of a micro-batch or slice: number `tokens` of the step's. */
void sp_tensor_embed(struct sp_op_ctx *c, int tokens, struct sp_tensor *x);

/* Adds to the gradients of the tables; dx stays. */
void sp_tensor_embed_gradient(struct sp_op_ctx *c, int tokens, struct sp_tensor *dx);

/* The logits of a share of the tokens, of so many rows of the table, if they are kept; NULL: they are not. */
struct sp_tensor *sp_tensor_logits(struct sp_op_ctx *c, int rows);

/* The statistics of a share's logits, of[member] of this one, to all members, and theirs from them. */
void sp_tensor_share_stats(struct sp_op_ctx *c, struct sp_tensor **of);

/* dx(T,h) = from x; gradients of the final norm and the table +=, and the loss of this member's tokens. */
void sp_tensor_head(struct sp_op_ctx *c, int tokens, struct sp_tensor *x, struct sp_tensor *dx,
                    int64_t released);

#endif
