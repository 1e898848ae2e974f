/* The context of an op, which its tasks are expanded from. */
#ifndef SP_GRAPH_OP_H
#define SP_GRAPH_OP_H

#include "graphs/graph.h"

enum { SP_NORMS = 3 }; /* per layer, at most */

/* The op being expanded. */
struct sp_op_ctx {
    struct sp_graph *g;
    struct sp_stage *st;
    const struct sp_shape *sh;
    struct sp_task_context ctx;
    struct sp_chunk_activations *fl;
    int mb, slice;
    const struct sp_cut *cut;  /* the cut that made the slice; NULL: the only one */
    int pipe, global, globals; /* global stage of the chunk, and how many its pipe has */
    int first, count;          /* layers of the chunk */
    bool split;                /* in a backward: weight gradients come in an op of their own */
    int given; /* the first slices, whose keys other stages attend to for this layer */
    /* Called in pass B when this process has added all it has to the gradients of the keys and
     * values of layer i: exchanges them with other processes. Called in pass G when keys and values
     * are computed: moves them behind those of earlier tokens. NULL: nothing to do. */
    void (*share)(struct sp_op_ctx *c, int i);
    void *data; /* for `share` */
    /* Replaces attention of layer i over the keys of all slices up to this one. Forward, d_o NULL:
     * o and lse; backward: dq and the gradients of keys and values from d_o. Stashes or releases
     * `bytes`. Its output is kept even under recomputation. NULL: no replacement. */
    void (*attend)(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, int64_t bytes);
    struct sp_tensor *const *w, *const *gradient; /* blocks for the chunk's layers in place of the
                                                   * stage's own, [count][SP_LAYER_BLOCKS]; NULL:
                                                   * its own */
    /* B adds the gradients of norm1 and norm2 to these, laid out like NORM1, and those of the gains
     * of heads, NULL if the model has none: [count][SP_NORMS]; NULL: adds to those of the
     * blocks. */
    struct sp_tensor *const *norms;
    struct sp_tensor *const *end_w, *const *end_gradient; /* the same for embedding and head,
                                                           * [SP_BLOCK_KINDS] */
    struct sp_zero_shards *shards; /* of another stage's layers; NULL: those of its own blocks */
    struct sp_tensor *flow;        /* the tensor that one layer hands to the next */
    struct sp_turns *turns; /* with the op that overlaps with this one (turns.h); NULL: none */
    bool second;            /* of the two */
};

/* The next tasks read what other members of the stage send: what an overlapping op can do without
 * waiting comes first. */
void sp_op_await(struct sp_op_ctx *c);

/* Opens an op at a place of a stage's program, with all that families share: its shape is that of
 * the slice. sp_op_close (codelets/task/codelet.h) ends it. */
struct sp_op_ctx sp_op_open(struct sp_graph *g, struct sp_stage *st, const struct sp_op *op,
                            int index);

/* The number of the op's micro-batch or slice among all of a step. */
static inline int sp_op_unit(const struct sp_op_ctx *c)
{
    return c->mb * c->g->cfg.plan->layout.slices + c->slice;
}

/* The cut of the sequences that an op works on. */
static inline const struct sp_cut *sp_op_cut(const struct sp_op_ctx *c)
{
    return c->cut ? c->cut : &c->g->cuts[0];
}

/* The shape of share j of the tokens, for products with parameters that members split. */
static inline const struct sp_shape *sp_op_share(const struct sp_op_ctx *c, int j)
{
    const struct sp_cut *cut = sp_op_cut(c);

    return cut->shares ? &cut->shares[c->slice * cut->n_shares + j] : c->sh;
}

/* The shape of part j of the tokens, for attention. */
static inline const struct sp_shape *sp_op_heads(const struct sp_op_ctx *c, int j)
{
    const struct sp_cut *cut = sp_op_cut(c);

    return cut->heads ? &cut->heads[c->slice] : sp_op_share(c, j);
}

/* The number of struct sp_heads that a layer needs besides its own, for the parts and then the
 * shares of the tokens. Give sets a layer's pointers to them; the first of them, NULL: none. */
int sp_activations_parts(const struct sp_shape *sh);
void sp_activations_give(const struct sp_shape *sh, struct sp_layer_activations *t,
                         struct sp_heads *parts);
static inline struct sp_heads *sp_activations_first(const struct sp_layer_activations *t)
{
    return t->heads != &t->own ? t->heads : t->shares != &t->own ? t->shares : NULL;
}

/* The tensors that a forward of a layer writes and keeps. */
struct sp_keep {
    bool saved, keep_outputs; /* pre and post saved; also the outputs of norms and activations */
    bool residual;            /* post saved is r alone */
    bool qkv;                 /* q, k, v */
    bool attn;                /* o and log-sum-exp */
    bool has_attn;            /* o and log-sum-exp exist already: attention does not run again */
    bool stash;               /* kept tensors count as stashed */
};

struct sp_keep sp_keep_in_forward(enum sp_recompute recompute);

/* True if the forward keeps k and v, because the backward or later slices read them. */
static inline bool sp_keeps_keys(const struct sp_op_ctx *c, struct sp_keep keep)
{
    return keep.qkv || sp_op_cut(c)->n > 1;
}

/* The recompute mode of layer i of the chunk. */
enum sp_recompute sp_chunk_recompute(const struct sp_op_ctx *c, int i);

/* True if the backward of layer i does the MLP in chunks of rows (sp_mlp_comes_in_chunks). */
bool sp_chunk_cuts_mlp(const struct sp_op_ctx *c, int i);

/* Weights and gradients of a block, from c->w and c->gradient if set, else the stage's own; NULL if
 * the model has no such block. */
struct sp_tensor *sp_weight(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);
struct sp_tensor *sp_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);

/* The shape that sizes the buffers which an op takes and gives back itself. This is the longest
 * slice, so that ops on all slices use the same buffers. It is the op's own slice if weight
 * gradients come later, if stages or devices send each other such tensors, if pools free what is
 * given back, or if whole buffers are checked for NaN. */
const struct sp_shape *sp_op_room(const struct sp_op_ctx *c);

/* Take (T,h) tensors: for use inside a stage; within an op, see sp_op_room; across stages, where
 * `st` reads them. */
struct sp_tensor *sp_take_hidden(struct sp_op_ctx *c, const char *name);
struct sp_tensor *sp_take_hidden_room(struct sp_op_ctx *c, const char *name);
struct sp_tensor *sp_take_boundary(struct sp_op_ctx *c, struct sp_stage *st, const char *name);

/* Takes an f32 buffer in which `tasks` tasks sum o or dq (struct sp_attn); NULL: one task, or f32,
 * writes in place. The caller drops it. */
struct sp_tensor *sp_take_sum(const struct sp_op_ctx *c, const struct sp_shape *sh, int tasks);

#endif
