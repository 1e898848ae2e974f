/*
 * What the parts of the subsequence family with multiplexed slices share: the ops (multiplexed.c), what a
 * stage has of others that it computes for (multiplexed_help.c), and what crosses between processes
 * (multiplexed_apart.c).
 *
 * Every process has room for the flights of all stages. It goes through all ops of a step in the same
 * order, and what an op of another process computed and its own need is received at that op's place; so
 * an op finds everything in the flights, whoever computed it.
 */
#ifndef SP_GRAPH_MULTIPLEXED_H
#define SP_GRAPH_MULTIPLEXED_H

#include "graphs/layer.h"
#include "policies/families/multiplex.h"

/* What a stage adds up for another one, and where it reads the weights. */
struct sp_help {
    starpu_data_handle_t *w, *gradient;         /* [layers of the other][3] */
    starpu_data_handle_t end_w[SP_BLOCK_KINDS]; /* embedding, or final norm and head */
    starpu_data_handle_t end_gradient[SP_BLOCK_KINDS];
    bool begun; /* in this step */
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

/* The parts of the same slice of global stage `to` with which part `part` of `from` shares tokens:
 * first .. last. */
void sp_multiplex_overlap(const struct sp_layout *lay, int from, int part, int to, int *first,
                          int *last);

/* ---- help --------------------------------------------------------------------------------- */

int sp_help_create(struct sp_graph *g); /* 0 or -ENOMEM */
void sp_help_destroy(struct sp_graph *g);

/* At the begin of a step: finds the weights, those of other processes are sent and received. */
void sp_help_begin(struct sp_graph *g);
/* The op computes for another stage: with its weights, and sums of gradients of its own. */
void sp_help_use(struct sp_op_ctx *c, bool backward);
/* At its end: the owners get the sums, in the order of the stages. */
void sp_help_end(struct sp_graph *g);

/* ---- between processes -------------------------------------------------------------------- */

/*
 * c->flow, an output (SP_F) or a gradient (SP_B), is for the parts of global stage `to` that share tokens
 * with the op: it is sent to those of other processes, and held for those of this one, each of which
 * gives it back.
 */
void sp_multiplex_hand_over(struct sp_op_ctx *c, enum sp_pass pass, int to);

/* sp_op_ctx.share of these ops: keys and values of a layer go to the processes of later parts; of their
 * gradients, what these have is added. */
void sp_multiplex_share(struct sp_op_ctx *c, int i);

/* The other half of both, at place i of the order: an op of another process. */
void sp_multiplex_pass_by(struct sp_graph *g, int i);

#endif
