/*
 * Keys and values of a slice that leave memory (plan/offload/keys.h): once the next slice's attention has read them.
 * Later slices read them too, and add to their gradients: they visit attention of each of these, some slices at a time,
 * in buffers that the stage uses in turns, and come back to stay for their own backward. All of it does nothing where
 * keys and values stay.
 */
#ifndef SP_GRAPH_STREAMED_KEYS_H
#define SP_GRAPH_STREAMED_KEYS_H

#include "graphs/op.h"

/* The next task is the first of layer i of the op, of its forward or its backward: what left has left by then, and the
 * slice's own keys and values come back. */
void sp_streamed_keys_next_layer(struct sp_op_ctx *c, int i);

/* Whether a visit that has *bytes of keys and values, 0: none yet, takes those of a slice too; *bytes become those of it,
 * or of the visit that begins with the slice. */
bool sp_streamed_keys_take(const struct sp_op_ctx *c, int i, int slice, int64_t *bytes);

/* The slices first .. end-1 of a layer, as far as they are away, in two buffers: one after the other, each beginning with
 * a page. */
struct sp_streamed_keys {
    int first, end;
    struct sp_tensor *kv, *dkv;
};

/* Begins the next visit of the stage: keys and values are read, and, if they are `made`, gradients. */
void sp_streamed_keys_begin(struct sp_op_ctx *c, int i, struct sp_streamed_keys *stream, bool made);

/* Its keys and values in turn, of a slice and part of the tokens: *at, 0 at first, is where in its buffers it ends. Elements
 * from the beginning to there. */
size_t sp_streamed_keys_next(const struct sp_op_ctx *c, int i, int slice, int part, size_t *at);

/* The tasks of the visit are submitted: gradients are written. */
void sp_streamed_keys_end(struct sp_op_ctx *c, int i, const struct sp_streamed_keys *stream);

/* Attention of the forward of layer i is submitted: the slice before this one is done with it. */
void sp_streamed_keys_evict(struct sp_op_ctx *c, int i);

/* Room for it on a stage. 0 or -ENOMEM. */
int sp_streamed_keys_create(struct sp_graph *g, struct sp_stage *st);
void sp_streamed_keys_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
