/*
 * Evicts keys and values of a slice (plan/offload/builder.h) once the next slice's attention has read
 * them. Later slices read them too, and add to their gradients: they are streamed through attention
 * of each of these slices, some slices at a time, in buffers that the stage uses in turns. They are
 * fetched for good for their own backward. All functions do nothing if keys and values stay.
 */
#ifndef SP_GRAPH_STREAMED_KEYS_H
#define SP_GRAPH_STREAMED_KEYS_H

#include "codelets/insert.h"
#include "graphs/op.h"

/* The next task is the first of layer i of the op, in its forward or backward: it waits for
 * evictions under way, and the slice's own keys and values are fetched. */
void sp_streamed_keys_next_layer(struct sp_op_ctx *c, int i);

/* A streamed batch: the evicted items among first .. end-1 in two buffers, one item after the other,
 * each beginning at a page. */
struct sp_streamed_keys {
    int first, end;
    bool made; /* gradients exist already */
    struct sp_tensor *kv, *dkv;
};

/*
 * Attention of a layer runs in rounds: the first over the keys and values in memory, then one for
 * each batch of evicted keys that is streamed through. Two batches are on their way while the tasks
 * of a third one compute. An item is the keys of a slice, or a share of them.
 */
struct sp_key_rounds {
    int items;
    struct sp_place **evicted[SP_MAX_SLICES]; /* [items] as in struct sp_layer_activations */
    bool gradients;                           /* gradients are streamed too */
    int n;                                    /* batches streamed through */
    struct sp_streamed_keys stream[SP_MAX_SLICES];
};

/* Forms batches of the items given, and begins to stream the first one. */
void sp_key_rounds_plan(struct sp_op_ctx *c, struct sp_key_rounds *r);

/* To be called before the first task of a round, 0 .. r->n, and after its last one. */
void sp_key_rounds_begin(struct sp_op_ctx *c, int round, struct sp_key_rounds *r);
void sp_key_rounds_end(struct sp_op_ctx *c, int round, struct sp_key_rounds *r);

/* True if a round reads an item's keys of a part of the tokens. Items in memory keep the tensors in
 * *keys; for others it gets those of the batch. *at, 0 at first, steps through the batch. */
bool sp_key_rounds_has(const struct sp_op_ctx *c, const struct sp_key_rounds *r, int round,
                       int item, int part, size_t *at, struct sp_attn_keys *keys);

/* Makes a place outside memory for `bytes` of a stage's keys and values, and begins to write them
 * there. Reads gradients of keys for the last time, into a tensor that is sent. */
struct sp_place *sp_streamed_keys_leave(struct sp_graph *g, struct sp_stage *st,
                                        struct sp_tensor *kv, const char *name);
struct sp_tensor *sp_streamed_keys_return(struct sp_graph *g, struct sp_stage *st,
                                          struct sp_place *place);

/* True if keys and values of a stage leave. */
bool sp_streamed_keys_any(const struct sp_graph *g, const struct sp_stage *st);

/* Attention of the forward of layer i is submitted: evicts the keys of the slice before this
 * one. */
void sp_streamed_keys_evict(struct sp_op_ctx *c, int i);

/* Allocates the buffers of a stage. 0 or -ENOMEM. */
int sp_streamed_keys_create(struct sp_graph *g, struct sp_stage *st);
void sp_streamed_keys_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
