/*
 * A chunk of layers of one micro-batch as tasks, with the ends of the model: what the graph families
 * that keep a micro-batch's layers together share.
 */
#ifndef SP_CHUNK_H
#define SP_CHUNK_H

#include "graphs/layer/layer.h"

/* Embedding of the tokens with this number (see struct sp_tokens) into x. */
void sp_chunk_embed(struct sp_op_ctx *c, int tokens, struct sp_tensor *x);

/* Head and loss from the chunk's output, which dies; writes the gradient of that output. */
void sp_chunk_head(struct sp_op_ctx *c, int tokens, struct sp_tensor *dx);

/* Gradients of embedding and positions from *dx, which dies. */
void sp_chunk_embed_gradient(struct sp_op_ctx *c, int tokens, struct sp_tensor **dx);

/* Forward of layer i of the chunk to y, which the next layer of it reads; `to_head`: y is kept for the
 * head. */
void sp_chunk_forward_layer(struct sp_op_ctx *c, int i, struct sp_tensor *y, bool to_head);

/* Backward of layer i of the chunk from c->flow, which becomes dx: recomputes what is needed first,
 * and does the weight gradients unless they come in an op of their own. */
void sp_chunk_backward_layer(struct sp_op_ctx *c, int i, struct sp_tensor *dx);

/* Either of them in parts, by the pass of the op (graphs/layer/layer.h): up to attention; attention; to y or dx. */
void sp_chunk_begin_layer(struct sp_op_ctx *c, int i);
void sp_chunk_attend_layer(struct sp_op_ctx *c, int i);
void sp_chunk_end_layer(struct sp_op_ctx *c, int i, struct sp_tensor *out, bool to_head);

/* Weight gradients of the chunk, that come in an op of their own. */
void sp_chunk_wgrad(struct sp_op_ctx *c);

/*
 * Where micro-batches stay on a worker, whole sequences: forward of a chunk, whose output is the input
 * of the chunk `next`, kept for the head after the last one (next NULL); backward from the gradient
 * that the chunk after it left, to that of the chunk `before`, of the embedding before the first (NULL):
 * unless `split`, which keeps it for the weight gradients.
 */
void sp_chunk_forward(struct sp_op_ctx *c, struct sp_chunk_activations *next);
void sp_chunk_backward(struct sp_op_ctx *c, struct sp_chunk_activations *before);

/* Room for `each` micro-batches or slices in each of `chunks` chunks as `stage` numbers them,
 * [chunks][each]. NULL: no memory. */
struct sp_chunk_activations *sp_activations_new(const struct sp_graph *g, int stage, int chunks,
                                                int each);
void sp_activations_free(struct sp_chunk_activations *activations);

/* Room on a stage for `each` micro-batches or slices in each of `chunks` chunks, st->flights
 * [chunks][each]. 0 or -ENOMEM. */
int sp_activations_create(struct sp_graph *g, struct sp_stage *st, int chunks, int each);
void sp_activations_destroy(struct sp_stage *st);
/* Undoes forwards whose tasks have ended: everything that they left is dropped. */
void sp_activations_drop(struct sp_graph *g, struct sp_stage *st, int chunks, int each);

#endif
