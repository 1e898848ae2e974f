/*
 * A chunk of layers of one micro-batch as tasks, with embedding and head, for the graph families
 * that keep a micro-batch's layers together.
 */
#ifndef SP_CHUNK_H
#define SP_CHUNK_H

#include "graphs/layer/layer.h"

/* Embeds the tokens with this number (see struct sp_tokens) into x. */
void sp_chunk_embed(struct sp_op_ctx *c, int tokens, struct sp_tensor *x);

/* Runs head and loss from *x, which it drops; writes the gradient of x. Ends the life of `released`
 * bytes. The other runs them from the chunk's output, which is stashed. */
void sp_chunk_head(struct sp_op_ctx *c, int tokens, struct sp_tensor **x, int64_t released,
                   struct sp_tensor *dx);
void sp_chunk_head_of_output(struct sp_op_ctx *c, int tokens, struct sp_tensor *dx);

/* Adds the gradients of embedding and positions from *dx, which it drops. */
void sp_chunk_embed_gradient(struct sp_op_ctx *c, int tokens, struct sp_tensor **dx);

/* The layer that a pass expands as number `step`. */
int sp_chunk_layer(const struct sp_op_ctx *c, int step);

/*
 * Runs the forward or backward of layer i of the chunk, by the op's pass, to `out`, which is also
 * c->flow then: y, which the next layer reads (`to_head`: it is kept for the head), or dx. A
 * backward begins from c->flow; it recomputes first what it needs, and does the weight gradients
 * unless they come in an op of their own.
 */
void sp_chunk_run_layer(struct sp_op_ctx *c, int i, struct sp_tensor *out, bool to_head);

/* The same in three parts (graphs/layer/layer.h): up to attention; attention; the rest. */
void sp_chunk_begin_layer(struct sp_op_ctx *c, int i);
void sp_chunk_attend_layer(struct sp_op_ctx *c, int i);
void sp_chunk_end_layer(struct sp_op_ctx *c, int i, struct sp_tensor *out, bool to_head);

/* Computes the weight gradients of the chunk when they are an op of their own. */
void sp_chunk_wgrad(struct sp_op_ctx *c);

/*
 * For families whose micro-batches stay on a worker, without slices. Forward: the chunk's output is
 * the input of the chunk `next` or, if that is NULL, is kept for the head. Backward: starts from
 * the gradient that the chunk after it left, and leaves one for the chunk `before`. If `before` is
 * NULL, it computes the embedding's gradient, but with `split` it keeps the gradient for the weight
 * op.
 */
void sp_chunk_forward(struct sp_op_ctx *c, struct sp_chunk_activations *next);
void sp_chunk_backward(struct sp_op_ctx *c, struct sp_chunk_activations *before);

/* Allocates [chunks][each] activations for `each` micro-batches or slices in each of `chunks`
 * chunks, numbered as `stage` does. NULL: no memory. */
struct sp_chunk_activations *sp_activations_new(const struct sp_graph *g, int stage, int chunks,
                                                int each);
void sp_activations_free(struct sp_chunk_activations *activations);

/* The same for a stage, in st->activations. 0 or -ENOMEM. */
int sp_activations_create(struct sp_graph *g, struct sp_stage *st, int chunks, int each);
void sp_activations_destroy(struct sp_stage *st);
/* Undoes forwards whose tasks have ended: drops everything that they left. */
void sp_activations_drop(struct sp_graph *g, struct sp_stage *st, int chunks, int each);

#endif
