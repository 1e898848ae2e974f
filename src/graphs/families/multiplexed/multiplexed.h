/*
 * What the parts of the subsequence family with multiplexed slices share: the ops (multiplexed.c), those of slices that
 * several stages compute (shared.c) with their keys (keys.c), and what a stage has of others that
 * it computes for (help.c). What crosses between stages is in their stores
 * (policies/families/multiplexed/actions.c): rows, weights and lent keys in that of any stage of the process, what parts
 * exchange and shares of keys in the op's own.
 */
#ifndef SP_GRAPH_MULTIPLEXED_H
#define SP_GRAPH_MULTIPLEXED_H

#include "graphs/layer/layer.h"
#include "policies/families/multiplexed/multiplex.h"

/* What a stage adds up for another one, and where it reads the weights. */
struct sp_multiplex_assist {
    struct sp_tensor **w, **gradient;        /* [layers of the other][3] */
    struct sp_tensor *end_w[SP_BLOCK_KINDS]; /* embedding, or final norm and head */
    struct sp_tensor *end_gradient[SP_BLOCK_KINDS];
    bool adds; /* sums were begun, and have not left */
};

struct sp_multiplex {
    struct sp_chunk_activations *activations; /* [stages][micro_batches][stride] */
    struct sp_multiplex_assist *help;         /* [stages that compute][stages they compute for] */
    struct sp_shared_op *op;                  /* [n_local] that a stage is in the middle of */
};

static inline const struct sp_layout *sp_multiplex_layout(const struct sp_graph *g)
{
    return &g->cfg.plan->layout;
}

static inline struct sp_chunk_activations *sp_multiplexed_activations(const struct sp_graph *g,
                                                                      int global, int mb, int part)
{
    return &g->multiplex->activations[sp_activations_index(g->cfg.plan, global, mb, part)];
}

/* A tensor in the store of a stage of this process; NULL: of none. */
const struct sp_stored *sp_multiplex_find(struct sp_graph *g, const struct sp_tensor_id *id);

/* What comes before the first layer of an op and after the last one: rows that came, or embedding or head. And what its
 * pass writes of layer i: x or dx, where the next layer or stage reads it. */
void sp_multiplex_begin(struct sp_op_ctx *c);
void sp_multiplex_end(struct sp_op_ctx *c);
struct sp_tensor *sp_multiplex_output(struct sp_op_ctx *c, int i);

/* ---- help --------------------------------------------------------------------------------- */

int sp_multiplex_assist_create(struct sp_graph *g); /* 0 or -ENOMEM */
void sp_multiplex_assist_destroy(struct sp_graph *g);

/* The op computes for another stage: with its weights, and sums of gradients of its own. */
void sp_multiplex_assist_use(struct sp_op_ctx *c, bool backward);
/* A sum is whole: the stage has it to send. And one that came is added to the stage's own gradient, or to its sum for
 * the same block. */
void sp_multiplex_assist_leave(struct sp_graph *g, struct sp_stage *st,
                               const struct sp_tensor_id *id);
void sp_multiplex_assist_add(struct sp_graph *g, struct sp_stage *st,
                             const struct sp_tensor_id *id);

#endif
