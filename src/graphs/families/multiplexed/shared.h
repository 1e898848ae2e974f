/* Slices of the family with multiplexed slices that several stages compute; their parts divide
 * attention by keys. */
#ifndef SP_GRAPH_MULTIPLEXED_SHARED_H
#define SP_GRAPH_MULTIPLEXED_SHARED_H

#include "graphs/families/chunk.h"

/* The op under way on a stage. */
struct sp_shared_op {
    struct sp_op_ctx c;
    int layer; /* the layer of the chunk that it has reached */
};

/* Submits one part of an open op (policies/families/multiplexed/shared_slices.h); `share` is for
 * struct sp_op_ctx. */
void sp_shared_run(struct sp_shared_op *r, int op_part, void (*share)(struct sp_op_ctx *c, int i));
/* Puts q, or o, lse and the gradient of o, of the layer that the op has reached, into the store for
 * the stages of the other parts. */
void sp_shared_send(struct sp_shared_op *r, const struct sp_tensor_id *id);

/* Make: the owner puts a share of a part's keys and values into its store. Add: the owner adds the
 * gradients of a share to its own (keys.c). */
void sp_share_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
void sp_share_add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id);

#endif
