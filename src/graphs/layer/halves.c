#include "graphs/layer/halves.h"
#include <string.h>

/* ---- buffers ---------------------------------------------------------------------------------- */

static struct sp_tensor *take(struct sp_op_ctx *c, size_t elements, const char *name)
{
    return sp_pool_get(c->st->local, elements, sp_shape_elem(c->sh), name);
}

/* The shape that sizes a buffer: a stashed tensor has the size of its own slice. */
static const struct sp_shape *size_of(const struct sp_op_ctx *c, struct sp_keep keep, bool kept)
{
    return keep.stash && kept ? c->sh : sp_op_room(c);
}

static bool is_split(const struct sp_op_ctx *c)
{
    return c->sh->tensor > 1;
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
    if (sp_tensor_shares(c) > 1 && j != sp_tensor_share(c))
        sp_op_await(c);
    else
        c->ctx.exchanged = false;
}

/* ---- chunks of rows ---------------------------------------------------------------------------- */

/* A chunk of the rows of every share, as a layer of so many rows. */
struct chunk {
    struct sp_op_ctx op;
    int at, rows; /* the first row; rows of the whole share */
    struct sp_layer_activations t;
    struct sp_heads shares[SP_MAX_SLICES];
};

/* The first one, or the one after it; false: there are no more. */
static bool next_chunk(const struct sp_op_ctx *c, struct chunk *k, bool first)
{
    int rows = c->sh->rows, each = c->sh->mlp_rows;

    k->at = first ? 0 : k->at + each;
    if (k->at >= rows)
        return false;
    k->rows = rows;
    k->op = *c;
    k->op.cut = &sp_op_cut(c)->chunks[k->at + each > rows];
    k->op.sh = &k->op.cut->shapes[c->slice];
    memset(k->shares, 0, sizeof *k->shares * (size_t)sp_tensor_shares(c));
    k->t = (struct sp_layer_activations){.shares = k->shares};
    return true;
}

static struct sp_tensor *cut_rows(struct chunk *k, struct sp_tensor *whole, int width,
                                  const char *name)
{
    int n = k->op.sh->rows;
    struct sp_tensor *part = take_rows(&k->op, width, name);

    sp_rows_insert(
        &k->op.ctx, k->op.sh,
        &(struct sp_rows){
            .batch = 1, .width = width, .n = n, .from_len = k->rows, .from_at = k->at, .to_len = n},
        whole, part, true);
    return part;
}

/* Puts the rows where they belong and drops them. */
static void put_rows(struct chunk *k, struct sp_tensor **part, int width, struct sp_tensor *whole)
{
    int n = k->op.sh->rows;

    sp_rows_insert(
        &k->op.ctx, k->op.sh,
        &(struct sp_rows){
            .batch = 1, .width = width, .n = n, .from_len = n, .to_len = k->rows, .to_at = k->at},
        *part, whole, k->at == 0);
    sp_pool_drop(part);
}

/* The chunk's rows of o of all shares. */
static void cut_outputs(struct chunk *k, const struct sp_layer_activations *t)
{
    for (int j = 0; j < sp_tensor_shares(&k->op); j++)
        k->shares[j].o = cut_rows(k, t->shares[j].o, sp_op_share(&k->op, j)->q_width, "o");
}

/* ---- pre, product by product ------------------------------------------------------------------ */

void sp_half_qkv_forward(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                         struct sp_tensor *w, bool keys, struct sp_pool *pool)
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

void sp_half_qkv_backward(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                          const struct sp_product_weights *w, struct sp_pool *pool,
                          struct sp_shares *dn1)
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

void sp_half_qkv_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *n1,
                       const struct sp_product_weights *w, int64_t released)
{
    int n = sp_tensor_shares(c);

    gather_n1(c, t, n1);
    for (int k = 0; k < n; k++) {
        int j = sp_tensor_arrival(c, k);
        struct sp_heads *h = &t->shares[j];

        reads(c, j);
        sp_qkv_wgrad_insert(&c->ctx, sp_op_share(c, j), h->n1, h->dq, h->dkv, w->g,
                            w->fresh && k == 0, k == n - 1 ? released : 0);
        sp_pool_drop(&h->n1);
        sp_pool_drop(&h->dq);
        sp_pool_drop(&h->dkv);
    }
    c->ctx.exchanged = false;
}

static struct sp_tensor *take_statistics(struct sp_op_ctx *c)
{
    return take(c, sp_shape_f32(c->sh, 2 * (size_t)c->sh->rows), "statistics");
}

static void split_pre_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                              const struct sp_pre_forward *p)
{
    if (p->keep.saved)
        t->pre = take_statistics(c);
    t->n1 = sp_take_hidden(c, "n1");
    sp_norm_fwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = p->x, .saved = t->pre}, t->n1, p->norm,
                       p->stashed);
    sp_half_qkv_forward(c, t, t->n1, p->qkv, p->keys, p->pool);
    if (!p->keep.keep_outputs)
        sp_pool_drop(&t->n1);
}

/* n1 of this member's tokens once more. */
static struct sp_tensor *norm1_again(struct sp_op_ctx *c, const struct sp_layer_activations *t,
                                     const struct sp_pre_backward *p)
{
    struct sp_tensor *n1 = sp_take_hidden(c, "n1");

    sp_norm_again_insert(&c->ctx, c->sh, false, p->norm, p->x, t->pre, n1);
    return n1;
}

static void split_pre_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                               const struct sp_pre_backward *p)
{
    struct sp_tensor *n1 = c->sh->model.qk_norm && !t->n1 ? norm1_again(c, t, p) : NULL;
    struct sp_shares dn;

    sp_half_qkv_backward(c, t, t->n1 ? t->n1 : n1, &p->qkv, c->st->local, &dn);
    sp_pool_drop(&n1);
    c->ctx.output = p->awaited;
    sp_op_await(c);
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, false, false, p->norm, p->g_norm, p->x, t->pre, dn.at[0],
                           dn.n - 1, dn.at + 1, p->dr, p->dx, 0);
    c->ctx.output = c->ctx.exchanged = false;
    sp_tensor_drop(&dn);
}

static void split_pre_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t,
                            const struct sp_pre_backward *p, int64_t released)
{
    if (!t->n1 && !t->shares[0].n1)
        t->n1 = norm1_again(c, t, p);
    sp_half_qkv_wgrad(c, t, t->n1, &p->qkv, released);
    sp_pool_drop(&t->n1);
    sp_pool_drop(&t->pre);
}

/* ---- pre ------------------------------------------------------------------------------------- */

void sp_half_pre_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                         const struct sp_pre_forward *p)
{
    const struct sp_shape *sh = c->sh;
    struct sp_keep keep = p->keep;
    size_t elem = sp_shape_elem(sh);

    if (is_split(c)) {
        split_pre_forward(c, t, p);
        return;
    }
    t->own.q = sp_pool_get(p->pool, (size_t)size_of(c, keep, keep.qkv)->rows * (size_t)sh->q_width,
                           elem, "q");
    if (p->keys)
        t->own.kv = sp_pool_get(p->pool, (size_t)sh->rows * (size_t)sh->kv_width, elem, "kv");
    if (keep.saved)
        t->pre =
            take(c, sp_shape_pre_saved(size_of(c, keep, true), keep.keep_outputs), "pre saved");
    sp_pre_fwd_insert(&c->ctx, sh,
                      &(struct sp_pre){.x = p->x,
                                       .saved = t->pre,
                                       .q = t->own.q,
                                       .kv = p->keys ? t->own.kv : NULL,
                                       .keep_outputs = keep.keep_outputs},
                      p->norm, p->qkv, p->stashed);
}

void sp_half_norm_forward(struct sp_op_ctx *c, struct sp_layer_activations *t, struct sp_tensor *x,
                          struct sp_tensor *norm)
{
    if (is_split(c)) {
        t->n1 = sp_take_hidden(c, "n1");
        t->pre = take_statistics(c);
    } else {
        t->pre = take(c, sp_shape_pre_saved(c->sh, true), "pre saved");
    }
    sp_norm_fwd_insert(&c->ctx, c->sh,
                       &(struct sp_pre){.x = x, .saved = t->pre, .keep_outputs = !is_split(c)},
                       t->n1, norm, 0);
}

static struct sp_pre saved_pre(const struct sp_layer_activations *t,
                               const struct sp_pre_backward *p)
{
    return (struct sp_pre){.x = p->x, .saved = t->pre, .keep_outputs = p->keep_outputs};
}

void sp_half_pre_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                          const struct sp_pre_backward *p)
{
    struct sp_pre pre = saved_pre(t, p);

    if (is_split(c)) {
        split_pre_backward(c, t, p);
        return;
    }
    c->ctx.output = p->awaited;
    sp_pre_bwd_insert(&c->ctx, c->sh, &pre, p->norm, p->qkv.w, p->g_norm, p->qkv.g, p->qkv.apart,
                      t->own.dq, t->own.dkv, p->dr, p->dx);
    c->ctx.output = false;
}

void sp_half_pre_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t,
                       const struct sp_pre_backward *p, int64_t released)
{
    struct sp_pre pre = saved_pre(t, p);

    if (is_split(c)) {
        split_pre_wgrad(c, t, p, released);
        return;
    }
    sp_pre_wgrad_insert(&c->ctx, c->sh, &pre, p->norm, t->own.dq, t->own.dkv, p->qkv.g, released);
    sp_pool_drop(&t->pre);
    sp_pool_drop(&t->own.dq);
    sp_pool_drop(&t->own.dkv);
}

/* ---- post, product by product ----------------------------------------------------------------- */

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
    sp_op_await(c);
    sp_partial_sum_insert(&c->ctx, c->sh, y, sum->n - 1, sum->at + 1);
    c->ctx.exchanged = false;
    sp_tensor_drop(sum);
}

static void split_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                               const struct sp_post_forward *p, int64_t stashed)
{
    struct sp_keep keep = p->keep;
    struct sp_shares sum;

    output(c, t, p->x, p->w, &sum);
    t->r = sum.at[0];
    sum.at[0] = NULL;
    if (keep.residual && !p->y) { /* the inside comes with the gradients */
        sp_op_await(c);
        sp_partial_sum_insert(&c->ctx, c->sh, t->r, sum.n - 1, sum.at + 1);
        c->ctx.exchanged = false;
        sp_tensor_drop(&sum);
        return;
    }
    t->n2 = sp_take_hidden(c, "n2");
    if (keep.saved)
        t->post = take_statistics(c);
    sp_op_await(c);
    sp_sum_norm_insert(&c->ctx, c->sh, true, p->w, t->r, sum.n - 1, sum.at + 1, t->n2, t->post,
                       stashed);
    c->ctx.exchanged = false;
    sp_tensor_drop(&sum);

    multiply(c, t, p->w, p->y || keep.keep_outputs, p->y, &sum);
    if (p->y)
        add_up(c, p->y, t->r, &sum);
    if (!keep.saved && !keep.residual)
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

static void split_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                                const struct sp_post_backward *p)
{
    const struct sp_product_weights *w = &p->w;
    struct sp_shares rows, dn;

    sp_tensor_gather(c, SP_TENSOR_DX, p->dy, &rows);
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
    sp_op_await(c);
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, true, w->apart, w->w, w->g, t->r, t->post, dn.at[0],
                           dn.n - 1, dn.at + 1, p->dy, p->dr, 0);
    sp_tensor_drop(&dn);

    sp_tensor_gather(c, SP_TENSOR_DX, p->dr, &rows);
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
static void split_post_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t,
                             const struct sp_product_weights *w, int64_t released)
{
    struct sp_shares n2;

    sp_tensor_gather(c, SP_TENSOR_N1, norm2_rows(c, t, w->w), &n2);
    for (int j = 0; j < n2.n; j++) {
        struct sp_heads *h = &t->shares[j];

        sp_out_wgrad_insert(&c->ctx, sp_op_share(c, j), h->o, h->dr, w->g);
        sp_pool_drop(&h->o);
        sp_pool_drop(&h->dr);
    }
    for (int j = 0; j < n2.n; j++) {
        struct sp_heads *h = &t->shares[j];

        reads(c, j);
        sp_mlp_wgrad_insert(&c->ctx, sp_op_share(c, j), n2.at[j], h->u, h->g, h->dy, h->du, w->g,
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

/* ---- post, chunk by chunk ---------------------------------------------------------------------- */

/* True if the forward of a split half keeps nothing of the inside of the MLP, or of post but r. */
static bool forward_in_chunks(const struct sp_op_ctx *c, struct sp_keep keep)
{
    return c->sh->mlp_rows < c->sh->rows && (keep.residual || !keep.saved);
}

static void chunked_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                                 const struct sp_post_forward *p)
{
    int h = c->sh->model.hidden;
    struct chunk k = {.at = 0};

    if (p->keep.residual)
        t->r = take_rows(c, h, "r");
    for (bool more = next_chunk(c, &k, true); more; more = next_chunk(c, &k, false)) {
        struct sp_post_forward part = {.x = cut_rows(&k, p->x, h, "x"),
                                       .w = p->w,
                                       .keep.residual = p->keep.residual,
                                       .y = p->y ? take_rows(&k.op, h, "y") : NULL};

        cut_outputs(&k, t);
        split_post_forward(&k.op, &k.t, &part, k.at == 0 ? p->stashed : 0);
        for (int j = 0; j < sp_tensor_shares(c); j++)
            sp_pool_drop(&k.shares[j].o);
        sp_pool_drop(&part.x);
        if (p->keep.residual)
            put_rows(&k, &k.t.r, h, t->r);
        if (p->y)
            put_rows(&k, &part.y, h, p->y);
    }
}

/* Computes the inside of the MLP once more, chunk by chunk, and all gradients of post with it. */
static void chunked_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                                  const struct sp_post_backward *p)
{
    int h = c->sh->model.hidden;
    struct chunk k = {.at = 0};

    for (bool more = next_chunk(c, &k, true); more; more = next_chunk(c, &k, false)) {
        struct sp_post_backward part = {.w = p->w, .dy = cut_rows(&k, p->dy, h, "dy")};
        bool last = k.at + k.op.sh->rows == k.rows;
        struct sp_shares none;

        cut_outputs(&k, t);
        k.t.r = cut_rows(&k, t->r, h, "r");
        k.t.n2 = sp_take_hidden(&k.op, "n2");
        k.t.post = take_statistics(&k.op);
        sp_sum_norm_insert(&k.op.ctx, k.op.sh, true, p->w.w, k.t.r, 0, NULL, k.t.n2, k.t.post, 0);
        multiply(&k.op, &k.t, p->w.w, true, NULL, &none);
        part.dr = take_rows(&k.op, h, "dr");
        for (int j = 0; j < sp_tensor_shares(c); j++)
            k.shares[j].d_o = take_rows(&k.op, sp_op_share(c, j)->q_width, "do");
        split_post_backward(&k.op, &k.t, &part);
        for (int j = 0; j < sp_tensor_shares(c); j++)
            put_rows(&k, &k.shares[j].d_o, sp_op_share(c, j)->q_width, t->shares[j].d_o);
        put_rows(&k, &part.dr, h, p->dr);
        split_post_wgrad(&k.op, &k.t, &p->w, last ? p->released : 0);
        sp_pool_drop(&part.dy);
    }
    sp_pool_drop(&t->r);
}

/* ---- post ------------------------------------------------------------------------------------ */

/* The bytes of what a forward of post keeps, if they count as stashed. */
static int64_t kept_by_post(const struct sp_op_ctx *c, struct sp_keep keep)
{
    enum sp_recompute mode = keep.keep_outputs ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_SELECTIVE;

    return keep.stash && keep.saved
               ? (int64_t)(sp_shape_elem(c->sh) * sp_stash_elements(c->sh, mode, SP_STASH_POST))
               : 0;
}

int64_t sp_half_post_forward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                             const struct sp_post_forward *p)
{
    struct sp_keep keep = p->keep;
    const struct sp_shape *size = size_of(c, keep, true);
    int64_t kept = kept_by_post(c, keep);

    if (is_split(c) && forward_in_chunks(c, keep)) {
        chunked_post_forward(c, t, p);
        return 0;
    }
    if (is_split(c)) {
        split_post_forward(c, t, p, kept + p->stashed);
        return kept;
    }
    if (keep.saved)
        t->post = take(c,
                       keep.residual ? sp_shape_residual_saved(size)
                                     : sp_shape_post_saved(size, keep.keep_outputs),
                       keep.residual ? "residual" : "post saved");
    sp_post_fwd_insert(&c->ctx, c->sh,
                       &(struct sp_post){.x = p->x,
                                         .o = t->own.o,
                                         .saved = t->post,
                                         .keep_outputs = keep.keep_outputs,
                                         .residual = keep.residual},
                       p->w, p->y, kept + p->stashed);
    return kept;
}

void sp_half_post_backward(struct sp_op_ctx *c, struct sp_layer_activations *t,
                           const struct sp_post_backward *p)
{
    const struct sp_shape *room = sp_op_room(c);
    struct sp_post post = {
        .o = t->own.o, .saved = t->post, .keep_outputs = p->keep_outputs, .residual = p->residual};

    if (is_split(c)) {
        (p->residual ? chunked_post_backward : split_post_backward)(c, t, p);
        return;
    }
    sp_pool_hold(p->dy);
    t->own.dy = p->dy;
    sp_pool_hold(p->dr);
    t->own.dr = p->dr;
    if (p->residual) {
        sp_post_again_insert(&c->ctx, c->sh, &post, p->w.w, p->w.g, p->dy, p->dr, t->own.d_o,
                             p->released);
        sp_pool_drop(&t->post);
        return;
    }
    t->own.du = take(c, (size_t)room->rows * (size_t)room->up_width, "du");
    sp_post_bwd_insert(&c->ctx, c->sh, &post, p->w.w, p->w.g, p->w.apart, p->dy, t->own.du, p->dr,
                       t->own.d_o);
}

void sp_half_post_wgrad(struct sp_op_ctx *c, struct sp_layer_activations *t,
                        const struct sp_product_weights *w, bool keep_outputs, int64_t released)
{
    struct sp_post post = {.o = t->own.o, .saved = t->post, .keep_outputs = keep_outputs};

    if (is_split(c) && t->post) {
        split_post_wgrad(c, t, w, released);
        return;
    }
    for (int j = 0; is_split(c) && j < sp_tensor_shares(c); j++)
        sp_pool_drop(&t->shares[j].o);
    if (t->post) /* else the backward has computed them */
        sp_post_wgrad_insert(&c->ctx, c->sh, &post, w->w, w->g, t->own.dy, t->own.du, t->own.dr,
                             released);
    sp_pool_drop(&t->post);
    sp_pool_drop(&t->own.o);
    sp_pool_drop(&t->own.du);
    sp_pool_drop(&t->own.dr);
    sp_pool_drop(&t->own.dy);
}
