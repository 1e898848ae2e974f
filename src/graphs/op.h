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
    struct sp_chunk_activations *fl;
    int mb, slice;
    const struct sp_cut *cut;  /* that the slice is of; NULL: the only one */
    int pipe, global, globals; /* global stage of the chunk, and how many its pipe has */
    int first, count;          /* layers of the chunk */
    bool split;                /* of a backward: weight gradients come in an op of their own */
    int given; /* slices of keys, the first ones, that other stages read for attention of this layer */
    /* The gradients of the keys and values of layer i have all that this process adds (pass B):
     * exchanges them with other processes. Pass G: keys and values are there, and go where those
     * of earlier tokens are. NULL: nothing to do. */
    void (*share)(struct sp_op_ctx *c, int i);
    void *data; /* of `share` */
    /* Attention of layer i in place of that over the keys of all slices up to this one: o and lse, or dq from d_o with
     * the gradients of keys and values; so many bytes are stashed with it, or released. Under recomputation its output is
     * kept. NULL: as described. */
    void (*attend)(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, int64_t bytes);
    struct sp_tensor *const *w, *const *gradient; /* blocks of the chunk's layers that are not the
                                               * stage's own, [count][SP_LAYER_BLOCKS]; NULL: its
                                               * own */
    /* Where B leaves the gradients of norm1 and norm2, blocks like NORM1, and of the gains of heads,
     * NULL without such: [count][SP_NORMS]; NULL: in those of the blocks. */
    struct sp_tensor *const *norms;
    struct sp_tensor *const *end_w, *const *end_gradient; /* the same of embedding and head,
                                                       * [SP_BLOCK_KINDS] */
    struct sp_tensor *flow; /* what the last layer expanded hands to the next one */
};

/* The number of its micro-batch or slice among those of a step. */
static inline int sp_op_unit(const struct sp_op_ctx *c)
{
    return c->mb * c->g->cfg.plan->layout.slices + c->slice;
}

/* How the sequences that an op works on are cut. */
static inline const struct sp_cut *sp_op_cut(const struct sp_op_ctx *c)
{
    return c->cut ? c->cut : &c->g->cuts[0];
}

/* Of products of parameters that members share, share j of the tokens. */
static inline const struct sp_shape *sp_op_share(const struct sp_op_ctx *c, int j)
{
    const struct sp_cut *cut = sp_op_cut(c);

    return &cut->shares[c->slice * cut->n_shares + j];
}

/* Of attention, part j of the tokens. */
static inline const struct sp_shape *sp_op_heads(const struct sp_op_ctx *c, int j)
{
    const struct sp_cut *cut = sp_op_cut(c);

    return cut->heads ? &cut->heads[c->slice] : cut->shares ? sp_op_share(c, j) : c->sh;
}

/* What a layer has in parts and in shares of the tokens, one after the other, that its flight points to: how many there
 * are, 0: none; and the pointers. */
int sp_activations_parts(const struct sp_shape *sh);
void sp_activations_give(const struct sp_shape *sh, struct sp_layer_activations *t,
                         struct sp_heads *parts);
static inline struct sp_heads *sp_activations_first(const struct sp_layer_activations *t)
{
    return t->heads ? t->heads : t->shares;
}

/* What a forward of a layer writes and keeps. */
struct sp_keep {
    bool saved, keep_outputs; /* pre and post saved; with the outputs of norms and activations */
    bool residual;            /* of post r alone */
    bool qkv;                 /* q, k, v */
    bool attn;                /* o and log-sum-exp */
    bool has_attn;            /* they are there already: attention does not run again */
    bool stash;               /* what is kept counts as stashed */
};

struct sp_keep sp_keep_in_forward(enum sp_recompute recompute);

/* Whether it keeps k and v, which later slices read. */
static inline bool sp_keeps_keys(const struct sp_op_ctx *c, struct sp_keep keep)
{
    return keep.qkv || sp_op_cut(c)->n > 1;
}

/* How layer i of the chunk is recomputed. */
enum sp_recompute sp_chunk_recompute(const struct sp_op_ctx *c, int i);

/* Whether the backward of layer i does the MLP in chunks (sp_mlp_comes_in_chunks). */
bool sp_chunk_cuts_mlp(const struct sp_op_ctx *c, int i);

/* Weights and gradients of blocks of this stage, or of c->w and c->gradient; NULL where the model has none. */
struct sp_tensor *sp_weight(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);
struct sp_tensor *sp_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);

/* The shape by whose sizes an op takes buffers that it gives back itself: that of the longest slice, so that ops on
 * other slices take the same buffers. Its own where weight gradients come later, where stages or devices send
 * each other such tensors, where pools free what is given back, and where all of a buffer is checked for NaN. */
const struct sp_shape *sp_op_room(const struct sp_op_ctx *c);

/* (T,h) tensors: inside a stage; of an op alone, see sp_op_room; across stages, where `st` is the one that reads them. */
struct sp_tensor *sp_take_hidden(struct sp_op_ctx *c, const char *name);
struct sp_tensor *sp_take_hidden_room(struct sp_op_ctx *c, const char *name);
struct sp_tensor *sp_take_boundary(struct sp_op_ctx *c, struct sp_stage *st, const char *name);

/* Where o or dq of a shape's tokens is summed up by so many tasks (struct sp_attn); NULL: in place, by one. The caller
 * drops it. */
struct sp_tensor *sp_take_sum(const struct sp_op_ctx *c, const struct sp_shape *sh, int tasks);

#endif
