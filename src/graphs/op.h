/* What the tasks of an op know of it. */
#ifndef SP_GRAPH_OP_H
#define SP_GRAPH_OP_H

#include "graphs/graph.h"

enum { SP_NORMS = 3 }; /* of a layer, at most */

/* The op being expanded. */
struct sp_op_ctx {
    struct sp_graph *g;
    struct sp_stage *st;
    const struct sp_shape *sh;
    struct sp_task_context ctx;
    struct sp_chunk_flight *fl;
    int mb, slice;
    const struct sp_cut *cut;  /* that the slice is of; NULL: the only one */
    int pipe, global, globals; /* global stage of the chunk, and how many its pipe has */
    int first, count;          /* layers of the chunk */
    bool split;                /* of a backward: weight gradients come in an op of their own */
    /* The gradients of the keys and values of layer i have all that this process adds (pass B):
     * exchanges them with other processes. Pass G: keys and values are there, and go where those
     * of earlier tokens are. NULL: nothing to do. */
    void (*share)(struct sp_op_ctx *c, int i);
    void *data;                               /* of `share` */
    const starpu_data_handle_t *w, *gradient; /* blocks of the chunk's layers that are not the
                                               * stage's own, [count][SP_LAYER_BLOCKS]; NULL: its
                                               * own */
    /* Where B leaves the gradients of norm1 and norm2, blocks like NORM1, and of the gains of heads,
     * NULL without such: [count][SP_NORMS]; NULL: in those of the blocks. */
    const starpu_data_handle_t *norms;
    const starpu_data_handle_t *end_w, *end_gradient; /* the same of embedding and head,
                                                       * [SP_BLOCK_KINDS] */
    starpu_data_handle_t flow; /* what the last layer expanded hands to the next one */
};

/* How the sequences that an op works on are cut. */
static inline const struct sp_cut *sp_op_cut(const struct sp_op_ctx *c)
{
    return c->cut ? c->cut : &c->g->cuts[0];
}

#endif
