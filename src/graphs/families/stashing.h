/* Versions of the weights of a stage that updates them within a step (stashing.c). */
#ifndef SP_STASHING_H
#define SP_STASHING_H

#include "graphs/op.h"

/* The op computes with the newest weights of its stage, or, a backward, with those of its forward. */
void sp_stashing_use(struct sp_op_ctx *c);

/* Room for the versions of a stage whose blocks are there: 0 or -ENOMEM; its end. */
int sp_stashing_create(struct sp_graph *g, struct sp_stage *st);
void sp_stashing_destroy(struct sp_stage *st);

/* A step begins with the newest weights. A backward of it is submitted: the update of its batch, if it is the last. */
void sp_stashing_begin(struct sp_stage *st);
void sp_stashing_end(struct sp_graph *g, struct sp_stage *st, const struct sp_op *op);

#endif
