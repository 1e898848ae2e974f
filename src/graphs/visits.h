/*
 * Keys and values of a slice that leave memory (plan/offload/keys.h): once the next slice's attention has read them.
 * Later slices read them too, and add to their gradients: they come for each of these (sp_visit), layer by layer, and
 * to stay for their own backward. All of it does nothing where keys and values stay.
 */
#ifndef SP_GRAPH_VISITS_H
#define SP_GRAPH_VISITS_H

#include "graphs/op.h"

/* The next task is the first of layer i of the op: visits are over, and the slice's own keys and values come back. */
void sp_visits_next_layer(struct sp_op_ctx *c, int i);

/* The next task is the first of the op: visits are over. */
void sp_visits_next_op(struct sp_op_ctx *c);

/* Whether a visit that has *bytes of keys and values, 0: none yet, takes those of a slice too; *bytes become those of it,
 * or of the visit that begins with the slice. */
bool sp_visit_takes(const struct sp_op_ctx *c, int slice, int64_t *bytes);

/* The keys and values of slices first .. end-1 that are away, for the attention of this one: they are on their way when
 * the next task begins. With `gradients` those too, which `made` says are there already. */
struct sp_visit *sp_visit_ask(struct sp_op_ctx *c, int i, int first, int end, bool gradients,
                              bool made);

/* The next task is the first that reads what was asked for. */
void sp_visit_enter(struct sp_op_ctx *c);

/* Attention of the forward of layer i is submitted: the slice before this one is done with it. */
void sp_visits_leave(struct sp_op_ctx *c, int i);

#endif
