/*
 * Attention of the attention-parallel family. The block before it sends q, k and v; or n1, and the
 * product's weights are shipped; or x, and the norm and both products are attention's too:
 *
 *   A(mb, l):  r = x + attention(norm1(x) Wqkv^T) Wo^T
 *
 * If the members of a stage split heads, each has all tokens of its heads, one piece per share of
 * the tokens.
 */
#include "graphs/families/part.h"
#include "graphs/tensor/attention.h"

static bool has_products(const struct sp_part_op *c)
{
    return c->ships == SP_SHIP_ATTENTION;
}

static struct sp_pool *local(const struct sp_part_op *c)
{
    return c->op.st->local;
}

/* Calls fn for this slice and all before it, each as an op of its own. */
static void each_slice(const struct sp_part_op *c, void (*fn)(struct sp_part_op *of))
{
    for (int j = 0; j <= c->op.slice; j++) {
        struct sp_part_op of = *c;

        of.op.fl = c->op.fl + j - c->op.slice;
        of.op.slice = j;
        of.op.sh = &c->op.g->cuts[0].shapes[j];
        fn(&of);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Computes or takes q, k and v of the op's slice, in the form that attention reads; `saved`: keeps
 * what the backward of the norm and its product needs. */
static void begin(struct sp_part_op *c, bool saved)
{
    struct sp_layer_activations *t = sp_part_own(c);

    if (has_products(c)) {
        sp_half_pre_forward(&c->op, t,
                            &(struct sp_pre_forward){
                                .x = t->x,
                                .norm = sp_part_weights_here(c, SP_BLOCK_NORM1),
                                .qkv = sp_part_weights_here(c, SP_BLOCK_QKV),
                                .keep = {.saved = saved, .keep_outputs = saved && c->keep_outputs},
                                .keys = true,
                                .pool = local(c)});
    } else if (c->ships) {
        sp_half_qkv_forward(&c->op, t, t->n1, sp_part_weights_here(c, SP_BLOCK_QKV), true,
                            local(c));
    } else {
        sp_part_hold_shares(c, SP_TENSOR_Q, c->k);
        sp_part_hold_shares(c, SP_TENSOR_KV, c->k);
    }
    sp_tensor_attention_take(&c->op, t, true);
}

static void begin_again(struct sp_part_op *c)
{
    begin(c, true);
}

/* Puts attention's output into the store. It stays among the activations too, unless attention
 * recomputes it or continues with another form of it. */
static void leave_output(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    int reader = sp_part_block_stage(c, c->k + 1), n = sp_tensor_shares(&c->op);
    struct sp_tensor *o[SP_MAX_SLICES];

    if (sp_op_cut(&c->op)->joined && sp_shape_exchanges(c->op.sh))
        sp_pool_drop(&t->own.o);
    if (!c->keeps_output || sp_op_cut(&c->op)->joined || sp_shape_exchanges(c->op.sh)) {
        sp_part_leave_shares(c, SP_TENSOR_O, c->k);
        return;
    }
    for (int j = 0; j < n; j++)
        o[j] = t->shares[j].o;
    sp_part_leave_kept(c, SP_TENSOR_O, n, o, reader, reader != c->op.st->index);
}

static void forget_keys(struct sp_part_op *c)
{
    sp_tensor_attention_drop(&c->op, sp_part_own(c), false, true, false);
}

/* Drops what the backward recomputes: the q of a shipped product, after the last slice the keys and
 * values of all, and the output with its log-sum-exp. */
static void forget(struct sp_part_op *c)
{
    bool shipped = c->ships && !c->keeps;

    sp_tensor_attention_drop(&c->op, sp_part_own(c), shipped, false, !c->keeps_output);
    if (shipped && c->op.slice == c->op.g->cuts[0].n - 1)
        each_slice(c, forget_keys);
}

/* Leaves r = x + o Wo^T. */
static void forward_products(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    struct sp_tensor *r =
        sp_part_take_for(c, sp_part_block_stage(c, c->k + 1), sp_part_hidden(c), "r");

    t->x = sp_part_hold(c, SP_TENSOR_X, c->k);
    begin(c, c->keeps);
    sp_tensor_attention_forward(&c->op, 0, c->stash, local(c));
    sp_out_fwd_insert(&c->op.ctx, c->op.sh, t->own.o, sp_part_weights_here(c, SP_BLOCK_POST), true,
                      t->x, r);
    forget(c);
    sp_part_leave(c, SP_TENSOR_R, c->k, r);
}

static void forward(struct sp_part_op *c)
{
    if (has_products(c)) {
        forward_products(c);
        return;
    }
    if (c->ships)
        sp_part_own(c)->n1 = sp_part_hold(c, SP_TENSOR_N1, c->k);
    begin(c, c->keeps);
    sp_tensor_attention_forward(&c->op, 0, c->stash, c->op.st->boundary);
    leave_output(c);
    forget(c);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Recomputes what the forward did not keep. */
static void recompute(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);

    if (!sp_attention_has_keys(t))
        each_slice(c, begin_again);
    if (!t->heads[0].lse) {
        sp_tensor_attention_forward(&c->op, 0, 0, local(c));
        sp_tensor_attention_drop_shares(&c->op, t);
    }
}

/* Leaves the gradient of n1, which comes from a shipped product, and adds that of its weights. */
static void product_backward(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    struct sp_pool *pool = sp_part_pool(c, sp_part_block_stage(c, c->k));
    struct sp_product_weights w = {.w = sp_part_weights_here(c, SP_BLOCK_QKV)};
    struct sp_shares dn1;

    w.g = sp_part_gradient_here(c, SP_BLOCK_QKV, &w.fresh);
    sp_half_qkv_backward(&c->op, t, t->n1, &w, pool, &dn1);
    if (dn1.n > 1)
        sp_partial_sum_insert(&c->op.ctx, c->op.sh, dn1.at[0], dn1.n - 1, dn1.at + 1);
    sp_pool_hold(dn1.at[0]);
    sp_part_leave(c, SP_TENSOR_DN1, c->k, dn1.at[0]);
    sp_tensor_drop(&dn1);
    sp_half_qkv_wgrad(&c->op, t, t->n1, &w, c->stash);
    sp_pool_drop(&t->n1);
}

/* The gradient of a block of weights, cleared if nothing was added to it yet. */
static struct sp_tensor *gradient(struct sp_part_op *c, enum sp_block_kind kind)
{
    bool fresh;
    struct sp_tensor *g = sp_part_gradient_here(c, kind, &fresh);

    if (fresh)
        sp_clear_insert(&c->op.ctx, g);
    return g;
}

/* Leaves the gradient of x; adds those of the norm and of both products. */
static void products_backward(struct sp_part_op *c, struct sp_tensor *dr)
{
    struct sp_layer_activations *t = sp_part_own(c);
    struct sp_pre_backward pre = {
        .x = t->x,
        .norm = sp_part_weights_here(c, SP_BLOCK_NORM1),
        .qkv = {.w = sp_part_weights_here(c, SP_BLOCK_QKV)},
        .keep_outputs = c->keep_outputs,
        .dr = dr,
        .dx = sp_part_take_for(c, sp_part_block_stage(c, c->k), sp_part_hidden(c), "dx"),
    };

    pre.qkv.g = gradient(c, SP_BLOCK_QKV);
    pre.g_norm = gradient(c, SP_BLOCK_NORM1);
    sp_half_pre_backward(&c->op, t, &pre);
    sp_part_leave(c, SP_TENSOR_DX, c->k, pre.dx);
    sp_out_wgrad_insert(&c->op.ctx, c->op.sh, t->own.o, dr, gradient(c, SP_BLOCK_POST));
    sp_tensor_attention_drop(&c->op, t, false, false, true);
    sp_half_pre_wgrad(&c->op, t, &pre, c->stash);
    sp_pool_drop(&t->x);
}

static void backward(struct sp_part_op *c)
{
    struct sp_layer_activations *t = sp_part_own(c);
    struct sp_tensor *dr = sp_part_stored(c, SP_TENSOR_DR, c->k);

    if (has_products(c))
        t->own.d_o = sp_pool_get(local(c), (size_t)c->op.sh->rows * (size_t)c->op.sh->q_width,
                                 sp_shape_elem(c->op.sh), "do");
    else
        sp_part_hold_shares(c, SP_TENSOR_DO, c->k);
    c->keep_outputs |= !c->keeps;
    recompute(c);
    if (has_products(c))
        sp_out_bwd_insert(&c->op.ctx, c->op.sh, dr, sp_part_weights_here(c, SP_BLOCK_POST),
                          t->own.d_o);
    sp_tensor_attention_backward(
        &c->op, 0, c->ships ? local(c) : sp_part_pool(c, sp_part_block_stage(c, c->k)),
        c->ships ? 0 : c->stash);
    for (int j = 0; j < sp_tensor_shares(&c->op); j++)
        sp_pool_drop(&t->shares[j].d_o);
    sp_tensor_attention_drop(&c->op, t, true, true, !has_products(c));
    if (has_products(c)) {
        products_backward(c, dr);
    } else if (c->ships) {
        product_backward(c);
    } else {
        sp_part_leave_shares(c, SP_TENSOR_DQ, c->k);
        sp_part_leave_shares(c, SP_TENSOR_DKV, c->k);
    }
}

void sp_part_attention(struct sp_part_op *c, enum sp_pass pass)
{
    c->op.ctx.layer = c->k;
    (pass == SP_F ? forward : backward)(c);
}
