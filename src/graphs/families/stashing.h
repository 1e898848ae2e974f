/* Versions of the weights of a stage that updates them within a step (stashing.c). */
#ifndef SP_STASHING_H
#define SP_STASHING_H

#include "graphs/op.h"

/* Sets the weights of an op: a forward reads the newest of its stage or late ones, a backward those
 * of its forward. */
void sp_stashing_use(struct sp_op_ctx *c);

/* Creates the versions of a stage whose blocks exist, 0 or -ENOMEM; and destroys them. */
int sp_stashing_create(struct sp_graph *g, struct sp_stage *st);
void sp_stashing_destroy(struct sp_stage *st);

/* Begin: a step begins with the newest weights. End: a backward was submitted; if it is the last of
 * its batch, submits the update. */
void sp_stashing_begin(struct sp_stage *st);
void sp_stashing_end(struct sp_graph *g, struct sp_stage *st, const struct sp_op *op);

#endif
