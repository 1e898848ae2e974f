/*
 * Shared by the files of the subsequence family with multiplexed slices: ops (multiplexed.c), ops
 * of slices that several stages compute (shared.c) with their keys (keys.c), and the state of a
 * stage that computes for others (assist.c). Tensors between stages are in their stores
 * (policies/families/multiplexed/actions.c): rows, weights and keys for other stages in that of any
 * stage of the process; tensors that parts exchange and shares of keys in the op's own.
 */
#ifndef SP_GRAPH_MULTIPLEXED_H
#define SP_GRAPH_MULTIPLEXED_H

#include "graphs/families/chunk.h"
#include "graphs/layer/layer.h"
#include "graphs/weights/zero.h"
#include "policies/families/multiplexed/multiplex.h"

/* One stage that computes for another: the weights it reads and the gradients it sums. */
struct sp_multiplex_assist {
    struct sp_zero_shards layers;            /* of the other */
    struct sp_tensor *end_w[SP_BLOCK_KINDS]; /* embedding, or final norm and head */
    struct sp_tensor *end_gradient[SP_BLOCK_KINDS];
    bool adds; /* sums exist that were not sent */
};

/* The op under way on a stage. */
struct sp_shared_op {
    struct sp_op_ctx c;
    int layer; /* the layer of the chunk that it has reached */
};

struct sp_multiplex {
    struct sp_chunk_activations *activations; /* [stages][micro_batches][stride] */
    struct sp_multiplex_assist *help;         /* [stages that compute][stages they compute for] */
    struct sp_shared_op *op;                  /* [n_local] the op under way on each stage */
    /* [n_local][stages][micro_batches][stride] places of a stage's share of a part's keys and
     * values, [layers][2], the second for their gradients; NULL: it is in memory. NULL: all are */
    struct sp_place ***shares;
};

static inline struct sp_multiplex *sp_multiplex_of(const struct sp_graph *g)
{
    return g->own;
}

static inline const struct sp_layout *sp_multiplex_layout(const struct sp_graph *g)
{
    return &g->cfg.plan->layout;
}

static inline struct sp_chunk_activations *sp_multiplexed_activations(const struct sp_graph *g,
                                                                      int global, int mb, int part)
{
    return &sp_multiplex_of(g)->activations[sp_activations_index(g->cfg.plan, global, mb, part)];
}

/* The places of a local stage's share of a part; NULL: in memory. */
struct sp_place **sp_share_places(const struct sp_graph *g, const struct sp_stage *st, int global,
                                  int mb, int part);

/* Finds a tensor in the store of any stage of this process; NULL: in none. */
const struct sp_stored *sp_multiplex_find(struct sp_graph *g, const struct sp_tensor_id *id);

/* Expand what comes before the first layer of an op and after the last one: received rows, or
 * embedding or head. sp_multiplex_output takes the tensor that layer i writes: x or dx, in a buffer
 * for the next layer or stage. */
void sp_multiplex_begin(struct sp_op_ctx *c);
void sp_multiplex_end(struct sp_op_ctx *c);
struct sp_tensor *sp_multiplex_output(struct sp_op_ctx *c, int i);
/* True if this tensor is the head's input. */
bool sp_multiplex_to_head(const struct sp_op_ctx *c, int i);

/* ---- computing for another stage ----------------------------------------------------------- */

int sp_multiplex_assist_create(struct sp_graph *g); /* 0 or -ENOMEM */
void sp_multiplex_assist_destroy(struct sp_graph *g);

/* Prepares an op that computes for another stage: with that stage's weights, and sums of gradients
 * of its own. */
void sp_multiplex_assist_use(struct sp_op_ctx *c, bool backward);
/* Leave: a sum is complete; puts it into the store, to be sent. Add: adds a sum that arrived to the
 * stage's own gradient, or to its sum for the same block. */
void sp_multiplex_assist_leave(struct sp_graph *g, struct sp_stage *st,
                               const struct sp_tensor_id *id);
void sp_multiplex_assist_add(struct sp_graph *g, struct sp_stage *st,
                             const struct sp_tensor_id *id);

/* ---- slices that several stages compute, whose parts divide attention by keys --------------- */

/* Submits one part of an open op (policies/families/multiplexed/shared_slices.h); `share` is for
 * struct sp_op_ctx. */
void sp_shared_run(struct sp_shared_op *r, int op_part, void (*share)(struct sp_op_ctx *c, int i));
/* Puts q, or o, lse and the gradient of o, of the layer that the op has reached, into the store for
 * the stages of the other parts. */
void sp_shared_send(struct sp_shared_op *r, const struct sp_tensor_id *id);

/* Make: the owner puts a share of a part's keys and values into its store. Add: the owner adds the
 * gradients of a share to its own; if these are evicted, the part's op does so when they are back
 * (keys.c). */
void sp_share_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
void sp_share_add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id);
void sp_share_add_layer(struct sp_op_ctx *c, int i);

/* If keys leave, evicts a share that has arrived. Fetch: puts its gradients into the store, to be
 * sent, and frees its places. */
void sp_share_evict(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
void sp_share_fetch(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

#endif
