/*
 * How weights and gradients get to the workers of a weight ring: around it, as the published layouts
 * have it, or from op to op down the line of workers.
 */
#ifndef SP_RING_FLOW_H
#define SP_RING_FLOW_H

#include "graphs/hand.h"

struct sp_ring_flow {
    int (*create)(struct sp_graph *g, struct sp_stage *st); /* 0 or -ENOMEM */
    void (*destroy)(struct sp_stage *st);

    /* As in struct sp_graph_family; NULL: nothing to do. */
    void (*begin)(struct sp_graph *g);
    void (*end)(struct sp_graph *g);
    void (*pass_by)(struct sp_graph *g, int i);
    void (*discard)(struct sp_graph *g); /* all tasks have ended; NULL: not available */

    /* Before and after the tasks of an op of a local worker, of what it computes with: weights, and the
     * gradients that it adds to; NULL where it wants none. */
    void (*arrive)(struct sp_graph *g, struct sp_stage *st, int index, struct sp_hand **weights,
                   struct sp_hand **gradients);
    void (*leave)(struct sp_graph *g, struct sp_stage *st, int index);
};

extern const struct sp_ring_flow sp_ring_around; /* ring_around.c */
extern const struct sp_ring_flow sp_ring_line;   /* ring_line.c */

/* Whether an op computes with weights of its chunk, and whether it adds to their gradients. */
static inline bool sp_ring_wants_weights(const struct sp_op *op)
{
    return op->part == SP_CHUNK && op->pass != SP_W;
}

static inline bool sp_ring_adds(const struct sp_graph *g, int worker, const struct sp_op *op)
{
    return op->part == SP_CHUNK && op->pass != SP_F && sp_op_releases(g->cfg.plan, worker, op);
}

#endif
