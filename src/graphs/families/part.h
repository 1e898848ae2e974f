/*
 * Shared by the ops of the attention-parallel family: the activations, their buffers, and the
 * tensors in the stores of stages (policies/families/attention_parallel/actions.c sends them
 * there).
 */
#ifndef SP_PART_H
#define SP_PART_H

#include "policies/families/attention_parallel/attention_parallel.h"
#include "graphs/layer/layer.h"

/* The activations of one slice of a micro-batch, from forward to backward, for block k and the
 * attention of layer k; NULL where absent. */
struct sp_part_activations {
    /* o and post of layer k-1; pre of layer k and its input x, in the last block the head's input.
     * Or x is the residual of layer k-1, from which all but o is recomputed. */
    struct sp_layer_activations block;
    struct sp_layer_activations attn; /* n1 or x, q, kv, o, lse */
    struct sp_tensor
        *norm; /* in the last block, if all stages split the head: its norm's statistics */
};

/* The op being expanded. */
struct sp_part_op {
    struct sp_graph *g;
    struct sp_stage *st;
    const struct sp_shape *sh;
    struct sp_task_context ctx;
    int mb, slice, k;
    enum sp_shipment ships;
    bool each;         /* every micro-batch ships weights and their gradients */
    bool keeps;        /* keeps norms and the MLP's intermediates */
    bool keeps_output; /* keeps attention's output and log-sum-exp */
    bool keep_outputs; /* keeps the outputs of norms and activations */
    int64_t stash;     /* bytes that the op stashes or releases */
};

static inline struct sp_part_activations *sp_part_activations_of(const struct sp_part_op *c, int k)
{
    size_t blocks = (size_t)c->sh->model.layers + 1, slices = (size_t)c->g->cuts[0].n;

    return &c->g->parts[((size_t)c->mb * blocks + (size_t)k) * slices + (size_t)c->slice];
}

static inline int64_t sp_part_bytes(struct sp_tensor *handle)
{
    return (int64_t)sp_tensor_size(handle);
}

static inline struct sp_tensor *sp_part_hold(struct sp_tensor *handle)
{
    sp_pool_hold(handle);
    return handle;
}

static inline size_t sp_part_hidden(const struct sp_part_op *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->model.hidden;
}

static inline size_t sp_part_q(const struct sp_part_op *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->q_width;
}

static inline size_t sp_part_kv(const struct sp_part_op *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->kv_width;
}

/* Takes a tensor that this op writes and frees, or that only this stage's ops read. */
static inline struct sp_tensor *sp_part_take(const struct sp_part_op *c, size_t elements,
                                             const char *name)
{
    return sp_pool_get(c->st->local, elements, sp_shape_elem(c->sh), name);
}

/* The number of pieces of a tensor that members split. */
static inline int sp_part_shares(const struct sp_part_op *c)
{
    return sp_shape_shares(c->sh);
}

/* The pool of tensors that go to `stage`: that stage's if it is in this process, else the op's
 * own. */
static inline struct sp_pool *sp_part_pool(const struct sp_part_op *c, int stage)
{
    struct sp_stage *st = sp_graph_stage(c->g, stage);

    return (st ? st : c->st)->boundary;
}

static inline struct sp_tensor *sp_part_take_for(const struct sp_part_op *c, int stage,
                                                 size_t elements, const char *name)
{
    return sp_pool_get(sp_part_pool(c, stage), elements, sp_shape_elem(c->sh), name);
}

static inline struct sp_tensor *sp_part_weight(const struct sp_part_op *c, enum sp_block_kind kind,
                                               int layer)
{
    return sp_stage_weight(c->st, kind, layer);
}

static inline struct sp_tensor *sp_part_gradient(const struct sp_part_op *c,
                                                 enum sp_block_kind kind, int layer)
{
    return sp_stage_gradient(c->st, kind, layer);
}

static inline int sp_part_block_stage(const struct sp_part_op *c, int j)
{
    return sp_block_stage(&c->g->cfg.plan->layout, j);
}

static inline int sp_part_attention_stage(const struct sp_part_op *c, int layer)
{
    return sp_attention_stage(&c->g->cfg.plan->layout, c->mb, layer);
}

/* The op's context for the tasks of a layer: a chunk of this layer alone, whose activations are
 * t. */
struct sp_op_ctx sp_part_op_of(const struct sp_part_op *c, struct sp_layer_activations *t,
                               struct sp_chunk_activations *one);
/* The op's context for attention, which also reads earlier slices: activations[SP_MAX_SLICES] are the
 * activations of all. */
struct sp_op_ctx sp_part_attention_of(const struct sp_part_op *c,
                                      struct sp_chunk_activations *activations);
/* Calls fn for this slice and all before it, each as an op of its own. */
void sp_part_each_slice(const struct sp_part_op *c, void (*fn)(struct sp_part_op *of));
/* The number of the op's slice among those of all micro-batches. */
static inline int sp_part_unit(const struct sp_part_op *c)
{
    return c->mb * c->g->cuts[0].n + c->slice;
}
/* After attention's forward, when its output was left: drops what the backward recomputes. This is
 * the q of a shipped product, after the last slice the keys and values of all, and the output with
 * its log-sum-exp. */
void sp_part_forget(struct sp_part_op *c);
/* True if attention must run again for its backward. */
static inline bool sp_part_runs_again(const struct sp_part_op *c)
{
    const struct sp_layer_activations *t = &sp_part_activations_of(c, c->k)->attn;

    return !(t->heads ? t->heads[0].lse : t->lse);
}

/*
 * The attention weights that the op computes with: the stage's own blocks, or the shipped ones,
 * which for SP_BLOCK_POST are the output product's. And the gradient to add to: the block's, or one
 * that goes to the owner; *fresh: nothing was added to it yet, and its contents are undefined.
 */
struct sp_tensor *sp_part_weights_here(const struct sp_part_op *c, enum sp_block_kind kind);
struct sp_tensor *sp_part_gradient_here(struct sp_part_op *c, enum sp_block_kind kind, bool *fresh);
/* Makes the tensor that the owner ships: a copy of the output product's weights. */
void sp_part_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
/* Adds a gradient that arrived at the owner to that of its block. */
void sp_part_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

/* x = embedding of the slice. */
void sp_part_embed(struct sp_part_op *c, struct sp_tensor *x);
/* True if all stages split the head. Then the last block's forward leaves the head's input,
 * computed from the block's output x. */
bool sp_part_shares_head(const struct sp_part_op *c);
void sp_part_head_input(struct sp_part_op *c, struct sp_tensor *x);
/* Runs final norm, logits and loss on the input in the block's activations; returns the gradient of
 * the last layer's output. */
struct sp_tensor *sp_part_head(struct sp_part_op *c);
/* The same if all stages split the head. Ends the life of `released` bytes. */
struct sp_tensor *sp_part_head_gradient(struct sp_part_op *c, int64_t released);
/* Computes the embedding's gradient from that of its output. */
void sp_part_embed_gradient(struct sp_part_op *c, struct sp_tensor *dx);
/* True if a block's backward does the MLP in chunks of rows. */
bool sp_part_cuts_mlp(const struct sp_part_op *c);

/* The forward of a block that computes nothing: keeps the received tensors for its backward. */
void sp_part_hold_inputs(struct sp_part_op *c);

/* Runs the op when a layer's norm, attention and products are one part (part_module.c). */
void sp_part_module_run(struct sp_part_op *c, const struct sp_op *op);

/* Runs the op, and its attention (part_tensor_attention.c), with tensor parallelism
 * (part_tensor.c). */
void sp_part_tensor_run(struct sp_part_op *c, const struct sp_op *op);
void sp_part_tensor_attention(struct sp_part_op *c, enum sp_pass pass);

/* Finds a tensor of this slice and layer in the stage's store, NULL: none. Only this op may read
 * it, unless it holds it. */
struct sp_tensor *sp_part_stored(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer);

/* The same for a tensor in pieces by parts of the tokens, which must exist: holds each, in piece[].
 * Leave puts the pieces into the store. */
void sp_part_hold_pieces(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                         struct sp_tensor **piece);
void sp_part_leave_pieces(struct sp_part_op *c, enum sp_tensor_kind kind, int layer, int n,
                          struct sp_tensor *const *piece);

/* Put into the store a tensor that the op also keeps. Input: a block's output x, the input of layer
 * k, which the activations take over if anything is kept. Output: attention's o, in pieces by parts
 * of the tokens, which stays among the activations unless attention recomputes it or also has it by
 * heads. A copy goes into the store if the tensor travels and may be evicted before it is read. */
void sp_part_leave_input(struct sp_part_op *c, struct sp_tensor *x);
void sp_part_leave_output(struct sp_part_op *c, int n, struct sp_tensor *const *o);

/* Puts a tensor into the stage's store, which takes over this op's hold. */
void sp_part_leave(struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                   struct sp_tensor *tensor);

#endif
