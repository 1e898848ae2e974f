/*
 * What a worker of a weight ring has of a chunk: its blocks, weights or gradients, in buffers of a pool
 * or as their owner keeps them.
 */
#ifndef SP_HAND_H
#define SP_HAND_H

#include "graphs/graph.h"
#include "policies/families/ring.h"

struct sp_hand {
    int n;                       /* blocks, three a layer; 0: empty */
    starpu_data_handle_t *block; /* [3 * layers of the largest chunk] */
    bool pooled;
};

static inline const struct sp_ring *sp_graph_ring(const struct sp_graph *g)
{
    return g->cfg.plan->layout.map->ring;
}

static inline int sp_graph_workers(const struct sp_graph *g)
{
    return g->place.stages;
}

static inline const struct sp_op *sp_graph_op(const struct sp_graph *g, int worker, int index)
{
    return &g->cfg.plan->programs[worker].ops[index];
}

/* Room for n hands, empty, in one piece that the caller frees; NULL: no memory. */
starpu_data_handle_t *sp_hands_create(const struct sp_graph *g, struct sp_hand *hands, size_t n);

void sp_ring_layers(const struct sp_graph *g, int chunk, int *first, int *count);
/* Block i, three a layer, of a chunk where its owner keeps it. */
struct sp_block *sp_ring_block(const struct sp_graph *g, struct sp_stage *owner, int chunk, int i);

/* The owner's own blocks: weights, or gradients. */
void sp_hand_own(const struct sp_graph *g, struct sp_stage *owner, int chunk, bool gradient,
                 struct sp_hand *hand);
/* Buffers of a stage's pool, of zeros. */
void sp_hand_clear(struct sp_graph *g, struct sp_stage *st, int chunk, struct sp_hand *hand);
/* The same blocks in another hand. */
void sp_hand_share(const struct sp_hand *from, struct sp_hand *to);
/* One more holder of what a pool gave; gives what a pool gave back, and empties the hand. */
void sp_hand_hold(const struct sp_hand *hand);
void sp_hand_put(struct sp_hand *hand);

/*
 * A hand on its way between processes: from a stage to another one, told from others by two numbers:
 * `turn` (from -2 on) and `which` (< SP_RING_ITEMS). What a pool gave is the message's until the op at
 * `until` of the order.
 */
void sp_hand_send(struct sp_graph *g, struct sp_stage *st, const struct sp_hand *hand, int to,
                  int turn, int which, int until);
/* Where what is received goes: buffers of the stage's pool, or the owner's gradients. */
enum sp_hand_for { SP_HAND_WEIGHTS, SP_HAND_GRADIENTS, SP_HAND_HOME };
void sp_hand_receive(struct sp_graph *g, struct sp_stage *st, struct sp_hand *hand, int chunk,
                     int from, int turn, int which, enum sp_hand_for what);

#endif
