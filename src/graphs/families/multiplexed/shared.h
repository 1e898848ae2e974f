/* Slices that several stages compute, of the family with multiplexed slices: their parts share attention by keys. */
#ifndef SP_GRAPH_MULTIPLEXED_SHARED_H
#define SP_GRAPH_MULTIPLEXED_SHARED_H

#include "graphs/families/chunk.h"

/* The op that a stage is in the middle of. */
struct sp_shared_op {
    struct sp_op_ctx c;
    int layer; /* of the chunk, that it has come to */
};

/* A leg of an op that was opened (policies/families/multiplexed/shared_slices.h), with struct sp_op_ctx's `share`. */
void sp_shared_run(struct sp_shared_op *r, int op_part, void (*share)(struct sp_op_ctx *c, int i));
/* q, or o, lse and its gradient, of the layer that the op has come to, for the stages of the other parts. */
void sp_shared_send(struct sp_shared_op *r, const struct sp_tensor_id *id);

/* A share of a part's keys and values, of its owner; gradients of one, added to his (keys.c). */
void sp_share_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
void sp_share_add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id);

#endif
