#include "graphs/tensor/halves.h"

/* ---- handles --------------------------------------------------------------------------------- */

static struct sp_tensor *take(struct sp_op_ctx *c, size_t elements, const char *name)
{
    return sp_pool_get(c->st->local, elements, sp_shape_elem(c->sh), name);
}

/* Takes a tensor for one share, `width` elements per row. */
static struct sp_tensor *take_rows(struct sp_op_ctx *c, int width, const char *name)
{
    return take(c, (size_t)c->sh->rows * (size_t)width, name);
}

/* Takes a tensor for each share; this member's own comes from `pool`. */
static void take_shares(struct sp_op_ctx *c, struct sp_pool *pool, const char *name,
                        struct sp_shares *all)
{
    size_t n = (size_t)c->sh->rows * (size_t)c->sh->model.hidden;

    all->n = sp_tensor_shares(c);
    for (int j = 0; j < all->n; j++)
        all->at[j] = j == sp_tensor_share(c) ? sp_pool_get(pool, n, sp_shape_elem(c->sh), name)
                                             : sp_take_hidden(c, name);
}

/* Notes if the next task reads a share that another member sends. */
static void reads(struct sp_op_ctx *c, int j)
{
    c->ctx.exchanged = sp_tensor_shares(c) > 1 && j != sp_tensor_share(c);
}

/* ---- before attention ------------------------------------------------------------------------ */

void sp_tensor_qkv_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                           struct sp_tensor *n1, struct sp_tensor *w, bool keys,
                           struct sp_pool *pool)
{
    size_t rows = (size_t)c->sh->rows, elem = sp_shape_elem(c->sh);
    struct sp_shares all;

    sp_tensor_gather(c, SP_TENSOR_N1, n1, &all);
    for (int k = 0; k < all.n; k++) {
        int j = sp_tensor_arrival(c, k);
        const struct sp_shape *sh = sp_op_share(c, j);
        struct sp_heads *h = &t->shares[j];

        h->q = sp_pool_get(pool, rows * (size_t)sh->q_width, elem, "q");
        if (keys)
            h->kv = sp_pool_get(pool, rows * (size_t)sh->kv_width, elem, "kv");
        reads(c, j);
        sp_qkv_fwd_insert(&c->ctx, sh, all.at[j], w, h->q, keys ? h->kv : NULL, 0);
    }
    c->ctx.exchanged = false;
    sp_tensor_drop(&all);
}

/* Gathers n1 of all shares, for the weight gradient, or before it for the norms of heads. */
static void gather_n1(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1)
{
    struct sp_shares all;

    if (t->shares[0].n1)
        return;
    sp_tensor_gather(c, SP_TENSOR_N1, n1, &all);
    for (int j = 0; j < all.n; j++)
        t->shares[j].n1 = all.at[j];
}

void sp_tensor_qkv_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            struct sp_tensor *n1, const struct sp_tensor_weights *w,
                            struct sp_pool *pool, struct sp_shares *dn1)
{
    if (c->sh->model.qk_norm)
        gather_n1(c, t, n1);
    take_shares(c, pool, "dn", dn1);
    for (int k = 0; k < dn1->n; k++) {
        int j = sp_tensor_departure(c, k);
        const struct sp_heads *h = &t->shares[j];

        sp_qkv_bwd_insert(&c->ctx, sp_op_share(c, j), h->n1, w->w, h->dq, h->dkv, dn1->at[j], w->g,
                          w->apart, w->fresh && k == 0);
    }
    sp_tensor_reduce(c, SP_TENSOR_DN1, dn1);
}

void sp_tensor_qkv_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                         struct sp_tensor *g, bool fresh, int64_t released)
{
    int n = sp_tensor_shares(c);

    gather_n1(c, t, n1);
    for (int k = 0; k < n; k++) {
        int j = sp_tensor_arrival(c, k);
        struct sp_heads *h = &t->shares[j];

        reads(c, j);
        sp_qkv_wgrad_insert(&c->ctx, sp_op_share(c, j), h->n1, h->dq, h->dkv, g, fresh && k == 0,
                            k == n - 1 ? released : 0);
        sp_pool_drop(&h->n1);
        sp_pool_drop(&h->dq);
        sp_pool_drop(&h->dkv);
    }
    c->ctx.exchanged = false;
}

/* ---- after attention ------------------------------------------------------------------------- */

/* r = x + o Wo^T + bias, as the terms of the sum in r->at[]. Term 0 is this member's own buffer;
 * only this one is kept. */
static void output(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *x,
                   struct sp_tensor *w, struct sp_shares *r)
{
    take_shares(c, c->st->local, "r", r);
    for (int k = 0; k < r->n; k++) {
        int j = sp_tensor_departure(c, k);

        sp_out_fwd_insert(&c->ctx, sp_op_share(c, j), t->shares[j].o, w, sp_tensor_completes(c, j),
                          NULL, r->at[j]);
    }
    sp_tensor_reduce(c, SP_TENSOR_X, r);
    sp_pool_hold(x);
    r->at[r->n++] = x;
}

/* Computes u, g and, if y is not NULL, this member's term of every share of y. */
static void multiply(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *w,
                     bool wants_g, struct sp_tensor *y, struct sp_shares *sum)
{
    struct sp_shares n2;

    sp_tensor_gather(c, SP_TENSOR_N1, t->n2, &n2);
    sum->n = n2.n;
    for (int k = 0; k < n2.n; k++) {
        int j = sp_tensor_arrival(c, k);
        const struct sp_shape *sh = sp_op_share(c, j);
        struct sp_heads *h = &t->shares[j];

        h->u = take_rows(c, sh->up_width, "u");
        h->g = wants_g ? take_rows(c, sh->model.mlp, "g") : NULL;
        sum->at[j] = !y ? NULL : j == sp_tensor_share(c) ? y : sp_take_hidden(c, "y");
        reads(c, j);
        sp_mlp_fwd_insert(&c->ctx, sh, n2.at[j], w, h->u, h->g, sp_tensor_completes(c, j),
                          sum->at[j]);
    }
    c->ctx.exchanged = false;
    sp_tensor_drop(&n2);
}

/* y, which has this member's term, += the terms of the others and r. */
static void add_up(struct sp_op_ctx *c, struct sp_tensor *y, struct sp_tensor *r,
                   struct sp_shares *sum)
{
    sp_pool_hold(y);
    sp_pool_hold(r);
    sp_tensor_reduce(c, SP_TENSOR_X, sum);
    sum->at[sum->n++] = r;
    c->ctx.exchanged = true;
    sp_partial_sum_insert(&c->ctx, c->sh, y, sum->n - 1, sum->at + 1);
    c->ctx.exchanged = false;
    sp_tensor_drop(sum);
}

/* Bytes that post stashes. */
static int64_t kept_bytes(const struct sp_op_ctx *c, struct sp_keep keep)
{
    enum sp_recompute mode = keep.keep_outputs ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_SELECTIVE;

    return keep.stash && keep.saved
               ? (int64_t)(sp_shape_elem(c->sh) * sp_stash_elements(c->sh, mode, SP_STASH_POST))
               : 0;
}

void sp_tensor_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            const struct sp_tensor_post *p)
{
    struct sp_keep keep = p->keep;
    struct sp_shares sum;

    output(c, t, p->x, p->w, &sum);
    t->r = sum.at[0];
    sum.at[0] = NULL;
    t->n2 = sp_take_hidden(c, "n2");
    if (keep.saved)
        t->post = take(c, sp_shape_f32(c->sh, 2 * (size_t)c->sh->rows), "statistics");
    c->ctx.exchanged = true;
    sp_sum_norm_insert(&c->ctx, c->sh, true, p->w, t->r, sum.n - 1, sum.at + 1, t->n2, t->post,
                       kept_bytes(c, keep) + p->stashed);
    c->ctx.exchanged = false;
    sp_tensor_drop(&sum);

    multiply(c, t, p->w, p->y || keep.keep_outputs, p->y, &sum);
    if (p->y)
        add_up(c, p->y, t->r, &sum);
    if (!keep.saved)
        sp_pool_drop(&t->r);
    if (!keep.keep_outputs)
        sp_pool_drop(&t->n2);
    for (int j = 0; j < sp_tensor_shares(c); j++) {
        if (!keep.saved)
            sp_pool_drop(&t->shares[j].u);
        if (!keep.keep_outputs)
            sp_pool_drop(&t->shares[j].g);
    }
}

void sp_tensor_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                             struct sp_tensor *dy, const struct sp_tensor_weights *w,
                             struct sp_tensor *dr)
{
    struct sp_shares rows, dn;

    sp_tensor_gather(c, SP_TENSOR_DX, dy, &rows);
    take_shares(c, c->st->local, "dn", &dn);
    for (int k = 0; k < rows.n; k++) {
        int j = sp_tensor_arrival(c, k);
        const struct sp_shape *sh = sp_op_share(c, j);
        struct sp_heads *h = &t->shares[j];

        h->dy = rows.at[j];
        h->du = take_rows(c, sh->up_width, "du");
        reads(c, j);
        sp_mlp_bwd_insert(&c->ctx, sh, h->u, w->w, h->dy, h->du, dn.at[j]);
    }
    sp_tensor_reduce(c, SP_TENSOR_DN1, &dn);
    c->ctx.exchanged = true;
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, true, w->apart, w->w, w->g, t->r, t->post, dn.at[0],
                           dn.n - 1, dn.at + 1, dy, dr, 0);
    sp_tensor_drop(&dn);

    sp_tensor_gather(c, SP_TENSOR_DX, dr, &rows);
    for (int k = 0; k < rows.n; k++) {
        int j = sp_tensor_arrival(c, k);
        const struct sp_shape *sh = sp_op_share(c, j);
        struct sp_heads *h = &t->shares[j];

        h->dr = rows.at[j];
        reads(c, j);
        sp_out_bwd_insert(&c->ctx, sh, h->dr, w->w, h->d_o);
    }
    c->ctx.exchanged = false;
}

/* n2 of this member's tokens, kept or recomputed. */
static struct sp_tensor *norm2_rows(struct sp_op_ctx *c, struct sp_layer_activations *t,
                                    struct sp_tensor *w)
{
    if (!t->n2) {
        t->n2 = sp_take_hidden(c, "n2");
        sp_norm_again_insert(&c->ctx, c->sh, true, w, t->r, t->post, t->n2);
    }
    return t->n2;
}

/* Adds the shares in the same order on all members, so that biases which all members hold get the
 * same bits. */
void sp_tensor_post_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *w,
                          struct sp_tensor *g, int64_t released)
{
    struct sp_shares n2;

    sp_tensor_gather(c, SP_TENSOR_N1, norm2_rows(c, t, w), &n2);
    for (int j = 0; j < n2.n; j++) {
        struct sp_heads *h = &t->shares[j];

        sp_out_wgrad_insert(&c->ctx, sp_op_share(c, j), h->o, h->dr, g);
        sp_pool_drop(&h->o);
        sp_pool_drop(&h->dr);
    }
    for (int j = 0; j < n2.n; j++) {
        struct sp_heads *h = &t->shares[j];

        reads(c, j);
        sp_mlp_wgrad_insert(&c->ctx, sp_op_share(c, j), n2.at[j], h->u, h->g, h->dy, h->du, g,
                            j == n2.n - 1 ? released : 0);
        sp_pool_drop(&h->u);
        sp_pool_drop(&h->g);
        sp_pool_drop(&h->dy);
        sp_pool_drop(&h->du);
    }
    c->ctx.exchanged = false;
    sp_tensor_drop(&n2);
    sp_pool_drop(&t->n2);
    sp_pool_drop(&t->r);
    sp_pool_drop(&t->post);
}
