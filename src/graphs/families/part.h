/*
 * Shared by the ops of the attention-parallel family: the activations, their buffers, and the
 * tensors in the stores of stages (policies/families/attention_parallel/actions.c sends them
 * there).
 */
#ifndef SP_PART_H
#define SP_PART_H

#include "policies/families/attention_parallel/attention_parallel.h"
#include "graphs/families/chunk.h"
#include "graphs/layer/halves.h"

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
    /* A chunk of one layer, whose activations are those of the block or of attention; attention has
     * those of earlier slices before its own. */
    struct sp_op_ctx op;
    int k; /* the block, or the layer of attention */
    enum sp_shipment ships;
    bool each;         /* every micro-batch ships weights and their gradients */
    bool keeps;        /* keeps norms and the MLP's intermediates */
    bool keeps_output; /* keeps attention's output and log-sum-exp */
    bool keep_outputs; /* keeps the outputs of norms and activations */
    int64_t stash;     /* bytes that the op stashes or releases */
};

/* The activations that the op works on. */
static inline struct sp_layer_activations *sp_part_own(const struct sp_part_op *c)
{
    return c->op.fl->layers;
}

struct sp_part_activations *sp_part_activations_of(const struct sp_op_ctx *op, int k);

static inline size_t sp_part_hidden(const struct sp_part_op *c)
{
    return (size_t)c->op.sh->rows * (size_t)c->op.sh->model.hidden;
}

/* The pool of tensors that go to `stage`: that stage's if it is in this process, else the op's
 * own. */
struct sp_pool *sp_part_pool(const struct sp_part_op *c, int stage);
struct sp_tensor *sp_part_take_for(const struct sp_part_op *c, int stage, size_t elements,
                                   const char *name);

/* The stages of block j, and of attention of a layer for the op's micro-batch. */
static inline int sp_part_block_stage(const struct sp_part_op *c, int j)
{
    return sp_block_stage(&c->op.g->cfg.plan->layout, j);
}

static inline int sp_part_attention_stage(const struct sp_part_op *c, int layer)
{
    return sp_attention_stage(&c->op.g->cfg.plan->layout, c->op.mb, layer);
}

/*
 * The attention weights that the op computes with: the stage's own blocks, or the shipped ones,
 * which for SP_BLOCK_POST are the output product's. And the gradient to add to: the block's, or one
 * that goes to the owner; *fresh: nothing was added to it yet, and its contents are undefined.
 */
struct sp_tensor *sp_part_weights_here(const struct sp_part_op *c, enum sp_block_kind kind);
struct sp_tensor *sp_part_gradient_here(struct sp_part_op *c, enum sp_block_kind kind, bool *fresh);
/* Makes ready what a stage ships: a copy of the output product's weights, or a shard of a gradient. */
void sp_part_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);
/* Adds a gradient that arrived at the owner to that of its block. */
void sp_part_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

/* Finds a tensor of this slice and layer in the stage's store, NULL: none. Only this op may read
 * it, unless it holds it. */
struct sp_tensor *sp_part_stored(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer);
struct sp_tensor *sp_part_hold(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer);

/* Puts a tensor into the stage's store, which takes over this op's hold. */
void sp_part_leave(struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                   struct sp_tensor *tensor);

/* The same for a tensor in pieces, one per share of the tokens: the one called `kind` of each of
 * the op's shares. */
void sp_part_hold_shares(struct sp_part_op *c, enum sp_tensor_kind kind, int layer);
void sp_part_leave_shares(struct sp_part_op *c, enum sp_tensor_kind kind, int layer);

/* Leaves tensors of layer k, in n pieces, for an op of `stage`, that are also kept for the
 * backward. If they travel, it leaves copies when the kept ones may be evicted before they are
 * read. */
void sp_part_leave_kept(struct sp_part_op *c, enum sp_tensor_kind kind, int n,
                        struct sp_tensor *const *piece, int stage, bool travels);

/*
 * Shards of the blocks that an op uses (graphs/weights/zero.h): begin gathers weights and makes
 * gradients of zeros, and gathers what the stage's next op uses; end scatters and drops. A stage to
 * which a block is shipped gets only the shard of its pipeline, gathers from that, and returns a shard
 * of the gradient.
 */
void sp_part_begin_shards(struct sp_part_op *c);
void sp_part_end_shards(struct sp_part_op *c);

/* Run the op, a block or attention. */
void sp_part_block(struct sp_part_op *c, enum sp_pass pass);
void sp_part_attention(struct sp_part_op *c, enum sp_pass pass);

#endif
