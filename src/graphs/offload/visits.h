/*
 * Keys and values of a slice that leave memory (plan/offload/keys.h): once the next slice's attention has read them.
 * Later slices read them too, and add to their gradients: they visit attention of each of these, some slices at a time,
 * in buffers that the stage uses in turns, and come back to stay for their own backward. All of it does nothing where
 * keys and values stay.
 */
#ifndef SP_GRAPH_VISITS_H
#define SP_GRAPH_VISITS_H

#include "graphs/op.h"

/* The next task is the first of layer i of the op, of its forward or its backward: what left has left by then, and the
 * slice's own keys and values come back. */
void sp_visits_next_layer(struct sp_op_ctx *c, int i);

/* Whether a visit that has *bytes of keys and values, 0: none yet, takes those of a slice too; *bytes become those of it,
 * or of the visit that begins with the slice. */
bool sp_visit_takes(const struct sp_op_ctx *c, int i, int slice, int64_t *bytes);

/* The slices first .. end-1 of a layer, as far as they are away, in two buffers: one after the other, each beginning with
 * a page. */
struct sp_visit {
    int first, end;
    struct sp_tensor *kv, *dkv;
};

/* Begins the next visit of the stage: keys and values are read, and, if they are `made`, gradients. */
void sp_visit_begin(struct sp_op_ctx *c, int i, struct sp_visit *visit, bool made);

/* Its keys and values in turn, of a slice and part of the tokens: *at, 0 at first, is where in its buffers it ends. Elements
 * from the beginning to there. */
size_t sp_visit_next(const struct sp_op_ctx *c, int i, int slice, int part, size_t *at);

/* The tasks of the visit are submitted: gradients are written. */
void sp_visit_end(struct sp_op_ctx *c, int i, const struct sp_visit *visit);

/* Attention of the forward of layer i is submitted: the slice before this one is done with it. */
void sp_visits_leave(struct sp_op_ctx *c, int i);

/* Room for it on a stage. 0 or -ENOMEM. */
int sp_visits_stage_create(struct sp_graph *g, struct sp_stage *st);
void sp_visits_stage_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
