/*
 * The two halves of a layer, before and after attention, as tasks. All families that keep or send
 * activations expand their ops from them, whether both halves run in one op or on different stages.
 *
 *   pre    n1 = norm1(x)            q, k, v = n1 Wqkv^T
 *   post   r = x + o Wo^T           n2 = norm2(r)           y = r + act(n2 Wup^T) Wdown^T
 *
 * A half is one task in each pass. If the members of a stage split heads and MLP (tensor
 * parallelism, graphs/tensor/shares.h), it is done product by product; braces are done for each
 * share of the tokens:
 *
 *   n1 = norm1(x)   gather   { q, k, v } of each share
 *   { attention } of each share, over those before it
 *   { o Wo^T }      reduce   r = x + sum, n2 = norm2(r)      gather
 *   { u, g, g Wdown^T }      reduce   y = r + sum
 *
 * and back: dy gathered, { du, dn2 } reduced, dr gathered, { do }, attention, { dn1 } reduced, dx.
 * Weight gradients gather n1 and n2 once more, because a member keeps only its own rows of them.
 * Forward and backward together gather six times and reduce four times.
 *
 * If the MLP is cut into chunks of rows (--mlp-chunk), post is done for a chunk of each share at a
 * time, forward where nothing of its inside is kept, and backward where it is recomputed
 * (HelixPipe, section 4.4.2): what is gathered, multiplied and summed exists for one chunk.
 *
 * All functions work on the activations `t` of the op's slice; c->ctx.layer is the layer. Each
 * backward takes `keep_outputs` as its forward did.
 */
#ifndef SP_HALVES_H
#define SP_HALVES_H

#include "graphs/tensor/shares.h"

/* The weights of a product, and where their gradient goes. */
struct sp_product_weights {
    struct sp_tensor *w, *g;
    bool apart; /* the gradient of norm2, or of the gains of heads, is laid out like norm1's */
    bool fresh; /* g = instead of g += */
};

/* ---- pre ------------------------------------------------------------------------------------- */

struct sp_pre_forward {
    struct sp_tensor *x, *norm, *qkv; /* the input, the weights of norm1 and of the product */
    struct sp_keep keep;              /* of pre, and of n1 with tensor parallelism */
    bool keys;                        /* k and v are wanted too */
    struct sp_pool *pool;             /* for q, k and v */
    int64_t stashed;                  /* bytes that come alive */
};

/* Computes q, k and v of all shares. */
void sp_half_pre_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                         const struct sp_pre_forward *p);

struct sp_pre_backward {
    struct sp_tensor *x, *norm, *g_norm; /* the input, the weights of norm1, their gradient */
    struct sp_product_weights qkv;       /* g: of the gains of heads */
    bool keep_outputs;
    struct sp_tensor *dr, *dx; /* the gradients of r and, as a result, of x */
    bool awaited;              /* other ops wait for dx */
};

/* Computes dx from dr and from dq and dkv of all shares. */
void sp_half_pre_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                          const struct sp_pre_backward *p);

/* Adds the product's gradient to p->qkv.g; drops dq and dkv of all shares, and what the forward
 * kept. Ends the life of `released` bytes. */
void sp_half_pre_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t,
                       const struct sp_pre_backward *p, int64_t released);

/* Computes norm1(x) once more, as a forward that keeps outputs does. */
void sp_half_norm_forward(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *x,
                          struct sp_tensor *norm);

/* The product alone, for stages that get n1 from another one; `n1` is this member's share. */

/* Computes q and, with `keys`, kv of all shares, taken from `pool`. */
void sp_half_qkv_forward(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                         struct sp_tensor *w, bool keys, struct sp_pool *pool);

/* Computes from dq and dkv of all shares the terms that all members add to dn1 of this member's
 * share; its own term is from `pool`. Gradients of the gains of heads go into w->g, see
 * sp_qkv_bwd_insert. If heads have norms, n1 is gathered and stays for the weight gradient. */
void sp_half_qkv_backward(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                          const struct sp_product_weights *w, struct sp_pool *pool,
                          struct sp_shares *dn1);

/* g += dq^T n1, dkv^T n1 or, if w->fresh, g =. Drops n1 of all shares, dq and dkv. Ends the life of
 * `released` bytes. */
void sp_half_qkv_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                       const struct sp_product_weights *w, int64_t released);

/* ---- post ------------------------------------------------------------------------------------ */

struct sp_post_forward {
    struct sp_tensor *x, *w; /* the residual, the weights */
    struct sp_keep keep;     /* of post and, with tensor parallelism, r, n2, u, g */
    struct sp_tensor *y;     /* the output; NULL: not wanted */
    int64_t stashed;         /* bytes that come alive besides what is kept here */
};

/* Computes y from o of all shares; without o, x is r already. Returns the bytes that keep.stash
 * counts. */
int64_t sp_half_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                             const struct sp_post_forward *p);

struct sp_post_backward {
    struct sp_product_weights w; /* g: of norm2; with `residual` of all that post has */
    bool keep_outputs;
    bool residual;        /* the forward kept r alone: the MLP is computed again in chunks of rows,
                            * together with all weight gradients */
    struct sp_tensor *dy; /* the output's gradient */
    struct sp_tensor *dr; /* its residual's, a result */
    int64_t released;     /* bytes whose life ends here with `residual` */
};

/* Computes dr from dy, and d_o of all shares into the buffers that the activations have; keeps what
 * the weight gradient needs. */
void sp_half_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                           const struct sp_post_backward *p);

/* Adds the weight gradients of the output, up and down products to g, unless the backward has;
 * drops all that they read from t. Ends the life of `released` bytes. */
void sp_half_post_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t,
                        const struct sp_product_weights *w, bool keep_outputs, int64_t released);

#endif
