/*
 * What the ops of the attention-parallel family share: the tensors in flight, their buffers, and what is in
 * the stores of stages for the next op (policies/families/attention_parallel/actions.c sends it there).
 */
#ifndef SP_PART_H
#define SP_PART_H

#include "policies/families/attention_parallel/attention_parallel.h"
#include "graphs/layer/layer.h"

/* What one slice of a micro-batch keeps of block k and of the attention of layer k from forward to backward; NULL where
 * absent. */
struct sp_part_activations {
    /* o and post of layer k-1; pre of layer k, and x, its input, of the last block the head's; or x is the residual of
     * layer k-1, from which all but o is made again */
    struct sp_layer_activations block;
    struct sp_layer_activations attn; /* n1 or x, q, kv, o, lse */
    struct sp_tensor
        *norm; /* of the last block, where all stages share the head: statistics of its norm */
};

/* The op being expanded. */
struct sp_part_op {
    struct sp_graph *g;
    struct sp_stage *st;
    const struct sp_shape *sh;
    struct sp_task_context ctx;
    int mb, slice, k;
    enum sp_shipment ships;
    bool each;         /* weights and their gradients come and go with every micro-batch */
    bool keeps;        /* norms and the MLP's insides */
    bool keeps_output; /* of attention, with its log-sum-exp */
    bool keep_outputs; /* and the outputs of norms and activations */
    int64_t stash;     /* of the op */
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

/* A tensor that this op writes and frees, or that only this stage's ops read. */
static inline struct sp_tensor *sp_part_take(const struct sp_part_op *c, size_t elements,
                                             const char *name)
{
    return sp_pool_get(c->st->local, elements, sp_shape_elem(c->sh), name);
}

/* Pieces of a tensor that members share. */
static inline int sp_part_shares(const struct sp_part_op *c)
{
    return sp_shape_shares(c->sh);
}

/* Of tensors that go to a stage: its own pool, if it is in this process. */
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

/* The op as the tasks of a layer have it: of a chunk of this layer alone, whose flight is t. */
struct sp_op_ctx sp_part_op_of(const struct sp_part_op *c, struct sp_layer_activations *t,
                               struct sp_chunk_activations *one);
/* As attention has it, which reads slices before this one, too: flights[SP_MAX_SLICES] are those of all. */
struct sp_op_ctx sp_part_attention_of(const struct sp_part_op *c,
                                      struct sp_chunk_activations *activations);
/* Does something for this slice and all before it, each as an op of its own. */
void sp_part_each_slice(const struct sp_part_op *c, void (*fn)(struct sp_part_op *of));
/* Its number among those of all micro-batches. */
static inline int sp_part_unit(const struct sp_part_op *c)
{
    return c->mb * c->g->cuts[0].n + c->slice;
}
/* Attention's forward is over and its output was left: drops what the backward makes again: of what was shipped q, and
 * after the last slice the keys and values of all; the output with its log-sum-exp. */
void sp_part_forget(struct sp_part_op *c);
/* Whether attention has to run again for its backward. */
static inline bool sp_part_runs_again(const struct sp_part_op *c)
{
    const struct sp_layer_activations *t = &sp_part_activations_of(c, c->k)->attn;

    return !(t->heads ? t->heads[0].lse : t->lse);
}

/*
 * A layer's weights of attention as its op computes with them: the stage's own blocks, or what was shipped, of
 * SP_BLOCK_POST the output product. And their gradient, to add to: the block's, or one that goes to the owner; *fresh
 * says that nothing was added to that yet, and what it holds is undefined.
 */
struct sp_tensor *sp_part_weights_here(const struct sp_part_op *c, enum sp_block_kind kind);
struct sp_tensor *sp_part_gradient_here(struct sp_part_op *c, enum sp_block_kind kind, bool *fresh);
/* What the owner has of it to send: a copy of the output product. */
void sp_part_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
/* Adds a gradient that came to the owner to that of its block. */
void sp_part_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

/* x = embedding of the slice. */
void sp_part_embed(struct sp_part_op *c, struct sp_tensor *x);
/* Whether all stages share the head; then the last block's forward leaves its input, from x, its output. */
bool sp_part_shares_head(const struct sp_part_op *c);
void sp_part_head_input(struct sp_part_op *c, struct sp_tensor *x);
/* Final norm, logits, loss and their gradient: that of the last layer's output, in the flight's block. */
struct sp_tensor *sp_part_head(struct sp_part_op *c);
/* The same where all stages share the head; ends the life of `released` bytes. */
struct sp_tensor *sp_part_head_gradient(struct sp_part_op *c, int64_t released);
/* The embedding's gradient, from that of its output. */
void sp_part_embed_gradient(struct sp_part_op *c, struct sp_tensor *dx);
/* Whether the MLP of a block's backward comes in chunks. */
bool sp_part_cuts_mlp(const struct sp_part_op *c);

/* A block's forward that computes nothing: what it received is kept for its backward. */
void sp_part_hold_inputs(struct sp_part_op *c);

/* The op where all of a layer's attention is one part, with its norm and products (part_module.c). */
void sp_part_module_run(struct sp_part_op *c, const struct sp_op *op);

/* The op where members share parameters (part_tensor.c), and attention's (part_tensor_attention.c). */
void sp_part_tensor_run(struct sp_part_op *c, const struct sp_op *op);
void sp_part_tensor_attention(struct sp_part_op *c, enum sp_pass pass);

/* A tensor of this slice and layer in the stage's store, NULL if there is none: read by this op only,
 * unless it holds it. */
struct sp_tensor *sp_part_stored(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer);

/* The same of one that is in pieces by parts of the tokens, all there: held, into piece[]. */
void sp_part_hold_pieces(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                         struct sp_tensor **piece);
void sp_part_leave_pieces(struct sp_part_op *c, enum sp_tensor_kind kind, int layer, int n,
                          struct sp_tensor *const *piece);

/* Puts what the op keeps, too, into the store: a block's output, the input of layer k, which the flight takes over if
 * anything is kept; attention's output, in pieces by parts of the tokens, which stays in the flight unless attention
 * makes it again, or has it by heads, too. If it goes to another stage and may leave memory before it is read there,
 * a copy. */
void sp_part_leave_input(struct sp_part_op *c, struct sp_tensor *x);
void sp_part_leave_output(struct sp_part_op *c, int n, struct sp_tensor *const *o);

/* Puts a tensor, and this op's hold of it, into the stage's store. */
void sp_part_leave(struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                   struct sp_tensor *tensor);

#endif
