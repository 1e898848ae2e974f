/*
 * Attention of a layer in the attention-parallel family when the members of a stage split heads.
 * Each member has all tokens of its heads, one piece per part of the tokens, and does the QKV
 * product if its weights are shipped.
 */
#include "graphs/families/part.h"
#include "graphs/tensor/attention.h"
#include "graphs/tensor/halves.h"

/* Computes q, k and v from the shipped n1, in the form that attention reads. */
static void multiply_here(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx op = sp_part_attention_of(c, activations);

    sp_tensor_qkv_forward(&op, &t->attn, t->attn.n1, sp_part_weights_here(c, SP_BLOCK_QKV), true,
                          c->st->local);
    sp_tensor_attention_take(&op, &t->attn, true);
}

/* Takes q, k and v that the block computed and sent. */
static void take_products(struct sp_part_op *c, struct sp_op_ctx *op)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *q[SP_MAX_SLICES], *kv[SP_MAX_SLICES];

    sp_part_hold_pieces(c, SP_TENSOR_Q, c->k, q);
    sp_part_hold_pieces(c, SP_TENSOR_KV, c->k, kv);
    for (int j = 0; j < sp_part_shares(c); j++) {
        t->attn.shares[j].q = q[j];
        t->attn.shares[j].kv = kv[j];
    }
    sp_tensor_attention_take(op, &t->attn, true);
}

static void attention_forward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_tensor *o[SP_MAX_SLICES];
    struct sp_op_ctx op;

    c->ctx.layer = c->k;
    op = sp_part_attention_of(c, activations);
    if (c->ships) {
        t->attn.n1 = sp_part_hold(sp_part_stored(c, SP_TENSOR_N1, c->k));
        multiply_here(c);
    } else {
        take_products(c, &op);
    }
    sp_tensor_attention_forward(&op, 0, c->stash, c->st->boundary);
    for (int j = 0; j < sp_part_shares(c); j++)
        o[j] = t->attn.shares[j].o;
    if (!t->attn.o) {
        sp_part_leave_output(c, sp_part_shares(c), o);
    } else { /* attention keeps the joined o, not these */
        if (sp_shape_exchanges(c->sh))
            sp_pool_drop(&t->attn.o);
        for (int j = 0; j < sp_part_shares(c); j++)
            t->attn.shares[j].o = NULL;
        sp_part_leave_pieces(c, SP_TENSOR_O, c->k, sp_part_shares(c), o);
    }
    sp_part_forget(c);
}

/* Computes the gradients of the QKV product's input and of its shipped weights. */
static void qkv_backward(struct sp_part_op *c, struct sp_op_ctx *op, struct sp_tensor *w)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_pool *pool = sp_part_pool(c, sp_part_block_stage(c, c->k));
    struct sp_shares dn1;
    bool fresh;
    struct sp_tensor *dw = sp_part_gradient_here(c, SP_BLOCK_QKV, &fresh);

    sp_tensor_qkv_backward(op, &t->attn, t->attn.n1,
                           &(struct sp_tensor_weights){.w = w, .g = dw, .fresh = fresh}, pool,
                           &dn1);
    if (dn1.n > 1)
        sp_partial_sum_insert(&op->ctx, c->sh, dn1.at[0], dn1.n - 1, dn1.at + 1);
    sp_part_leave(c, SP_TENSOR_DN1, c->k, sp_part_hold(dn1.at[0]));
    sp_tensor_drop(&dn1);
    sp_tensor_qkv_wgrad(op, &t->attn, t->attn.n1, dw, fresh, c->stash);
    sp_pool_drop(&t->attn.n1);
}

/* Leaves dq and dkv for the block that does the product. */
static void leave_gradients(struct sp_part_op *c)
{
    struct sp_heads *heads = sp_part_activations_of(c, c->k)->attn.shares;
    struct sp_tensor *dq[SP_MAX_SLICES], *dkv[SP_MAX_SLICES];

    for (int j = 0; j < sp_part_shares(c); j++) {
        dq[j] = heads[j].dq;
        dkv[j] = heads[j].dkv;
        heads[j].dq = heads[j].dkv = NULL;
    }
    sp_part_leave_pieces(c, SP_TENSOR_DQ, c->k, sp_part_shares(c), dq);
    sp_part_leave_pieces(c, SP_TENSOR_DKV, c->k, sp_part_shares(c), dkv);
}

static void attention_backward(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_pool *pool = c->ships ? c->st->local : sp_part_pool(c, sp_part_block_stage(c, c->k));
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_tensor *d_o[SP_MAX_SLICES];
    struct sp_op_ctx op;

    c->ctx.layer = c->k;
    op = sp_part_attention_of(c, activations);
    sp_part_hold_pieces(c, SP_TENSOR_DO, c->k, d_o);
    for (int j = 0; j < sp_part_shares(c); j++)
        t->attn.shares[j].d_o = d_o[j];
    if (!sp_attention_has_keys(&t->attn))
        sp_part_each_slice(c, multiply_here);
    if (sp_part_runs_again(c)) {
        sp_tensor_attention_forward(&op, 0, 0, c->st->local);
        for (int j = 0; t->attn.o && j < sp_part_shares(c); j++)
            sp_pool_drop(&t->attn.shares[j].o);
    }
    sp_tensor_attention_backward(&op, 0, pool, c->ships ? 0 : c->stash);
    sp_tensor_attention_drop(&op, &t->attn, true, true, true);
    if (c->ships)
        qkv_backward(c, &op, sp_part_weights_here(c, SP_BLOCK_QKV));
    else
        leave_gradients(c);
}

void sp_part_tensor_attention(struct sp_part_op *c, enum sp_pass pass)
{
    (pass == SP_F ? attention_forward : attention_backward)(c);
}
