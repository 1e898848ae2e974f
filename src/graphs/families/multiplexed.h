/*
 * What the parts of the subsequence family with multiplexed slices share: the ops (multiplexed.c), and what
 * a stage has of others that it computes for (multiplexed_help.c). What crosses between stages is in their
 * stores (policies/families/multiplexed/actions.c); an op finds it in that of any stage of the process.
 */
#ifndef SP_GRAPH_MULTIPLEXED_H
#define SP_GRAPH_MULTIPLEXED_H

#include "graphs/layer.h"
#include "policies/families/multiplexed/multiplex.h"

/* What a stage adds up for another one, and where it reads the weights. */
struct sp_help {
    starpu_data_handle_t *w, *gradient;         /* [layers of the other][3] */
    starpu_data_handle_t end_w[SP_BLOCK_KINDS]; /* embedding, or final norm and head */
    starpu_data_handle_t end_gradient[SP_BLOCK_KINDS];
    bool reads, adds; /* in this step: the weights were found, the sums begun */
};

struct sp_multiplex {
    struct sp_chunk_flight *flights; /* [stages][micro_batches][stride] */
    struct sp_help *help;            /* [stages that compute][stages they compute for] */
};

static inline const struct sp_layout *sp_multiplex_layout(const struct sp_graph *g)
{
    return &g->cfg.plan->layout;
}

static inline struct sp_chunk_flight *sp_multiplex_flight(const struct sp_graph *g, int global,
                                                          int mb, int part)
{
    return &g->multiplex->flights[sp_flight_number(g->cfg.plan, global, mb, part)];
}

/* A tensor in the store of a stage of this process; NULL: of none. */
const struct sp_stored *sp_multiplex_find(struct sp_graph *g, const struct sp_tensor_id *id);

/* ---- help --------------------------------------------------------------------------------- */

int sp_help_create(struct sp_graph *g); /* 0 or -ENOMEM */
void sp_help_destroy(struct sp_graph *g);

/* A step begins. */
void sp_help_begin(struct sp_graph *g);
/* The op computes for another stage: with its weights, and sums of gradients of its own. */
void sp_help_use(struct sp_op_ctx *c, bool backward);
/* At the end of a step: what another stage summed up is added to the gradient of its owner. */
void sp_help_add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *sum);

#endif
