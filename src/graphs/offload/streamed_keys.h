/*
 * Evicts keys and values of a slice (plan/offload/builder.h) once the next slice's attention has read
 * them. Later slices read them too, and add to their gradients: they are streamed through attention
 * of each of these slices, some slices at a time, in buffers that the stage uses in turns. They are
 * fetched for good for their own backward. All functions do nothing if keys and values stay.
 */
#ifndef SP_GRAPH_STREAMED_KEYS_H
#define SP_GRAPH_STREAMED_KEYS_H

#include "graphs/op.h"

/* The next task is the first of layer i of the op, in its forward or backward: it waits for
 * evictions under way, and the slice's own keys and values are fetched. */
void sp_streamed_keys_next_layer(struct sp_op_ctx *c, int i);

/* True if a streamed batch with *bytes of keys and values, 0: no batch yet, can also take those of
 * a slice. *bytes becomes the size of the batch, or of the new batch that begins with the slice. */
bool sp_streamed_keys_take(const struct sp_op_ctx *c, int i, int slice, int64_t *bytes);

/* A streamed batch: the evicted slices among first .. end-1 of a layer, in two buffers, one slice
 * after the other, each beginning at a page. */
struct sp_streamed_keys {
    int first, end;
    struct sp_tensor *kv, *dkv;
};

/* Begins to stream the next batch: reads keys and values and, if they are `made`, gradients. */
void sp_streamed_keys_begin(struct sp_op_ctx *c, int i, struct sp_streamed_keys *stream, bool made);

/* Steps through the batch: returns the first element, in the batch's buffers, of a slice's part of
 * the tokens. *at, 0 at first, advances to the end of that part, in bytes. */
size_t sp_streamed_keys_next(const struct sp_op_ctx *c, int i, int slice, int part, size_t *at);

/* The tasks of the batch are submitted: writes the gradients back. */
void sp_streamed_keys_end(struct sp_op_ctx *c, int i, const struct sp_streamed_keys *stream);

/* Attention of the forward of layer i is submitted: evicts the keys of the slice before this
 * one. */
void sp_streamed_keys_evict(struct sp_op_ctx *c, int i);

/* Allocates the buffers of a stage. 0 or -ENOMEM. */
int sp_streamed_keys_create(struct sp_graph *g, struct sp_stage *st);
void sp_streamed_keys_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
