#include "graphs/attention.h"
#include "graphs/context/heads.h"
#include "graphs/context/ring.h"

static starpu_data_handle_t take(const struct sp_op_ctx *c, struct sp_pool *pool, size_t elements,
                                 const char *name)
{
    return sp_pool_get(pool, elements, sp_shape_elem(c->sh), name);
}

/* ---- what attention reads ----------------------------------------------------------------- */

/* Of attention, one part of the tokens of the slice: all of them where heads are not shared. */
static struct sp_heads heads_of(const struct sp_layer_flight *t, int part)
{
    return t->heads ? t->heads[part]
                    : (struct sp_heads){.q = t->q, .kv = t->kv, .o = t->o, .lse = t->lse};
}

static int parts_of(const struct sp_op_ctx *c)
{
    return sp_shape_parts(c->sh);
}

/* Whether what attention reads and writes by heads is exchanged for all heads of this process's tokens. */
static bool exchanges(const struct sp_op_ctx *c)
{
    return sp_shape_exchanges(c->sh);
}

/* Attention in layer i of one part of the tokens of this slice over the keys and values up to them: of the slices
 * before, of parts before. */
struct attention {
    struct sp_attn at;
    int len[SP_MAX_SLICES];
    starpu_data_handle_t kv[SP_MAX_SLICES];
};

static void attention_of(const struct sp_op_ctx *c, int i, int part, struct attention *a)
{
    const struct sp_heads h = heads_of(&c->fl->layers[i], part);
    int n = 0, pos = 0;

    for (int j = 0; j <= c->slice; j++)
        for (int k = 0; k < (j < c->slice ? parts_of(c) : part + 1); k++, n++) {
            a->len[n] = sp_op_cut(c)->shapes[j].seq;
            a->kv[n] = heads_of(&c->fl[j - c->slice].layers[i], k).kv;
            pos += a->len[n];
        }
    a->at = (struct sp_attn){
        .q_len = c->sh->seq,
        .q_pos = pos - c->sh->seq,
        .n_kv = n,
        .kv_len = a->len,
        .q = h.q,
        .o = h.o,
        .lse = h.lse,
        .kv = a->kv,
    };
}

bool sp_attention_has_keys(const struct sp_layer_flight *t)
{
    return heads_of(t, 0).kv != NULL;
}

void sp_attention_share_out(struct sp_op_ctx *c, struct sp_layer_flight *t, bool keys)
{
    starpu_data_handle_t parts[SP_MAX_SLICES];

    if (!exchanges(c))
        return;
    sp_context_spread(c, SP_TENSOR_Q, t->q, parts);
    sp_drop(&t->q);
    for (int j = 0; j < parts_of(c); j++)
        t->heads[j].q = parts[j];
    if (!keys)
        return;
    sp_context_spread(c, SP_TENSOR_KV, t->kv, parts);
    sp_drop(&t->kv);
    for (int j = 0; j < parts_of(c); j++)
        t->heads[j].kv = parts[j];
}

/* ---- tasks --------------------------------------------------------------------------------- */

void sp_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool)
{
    const struct sp_shape *heads = sp_op_heads(c, 0);
    struct sp_layer_flight *t = &c->fl->layers[i];
    size_t T = (size_t)heads->rows;
    starpu_data_handle_t parts[SP_MAX_SLICES];

    c->ctx.exchanged = t->heads != NULL;
    for (int j = 0; j < parts_of(c); j++) {
        struct attention a;
        starpu_data_handle_t lse =
            take(c, c->st->local, sp_shape_f32(heads, T * (size_t)heads->model.heads), "lse");

        parts[j] = take(c, exchanges(c) ? c->st->local : pool, T * (size_t)heads->q_width, "o");
        *(t->heads ? &t->heads[j].o : &t->o) = parts[j];
        *(t->heads ? &t->heads[j].lse : &t->lse) = lse;
        if (heads->ring) {
            sp_context_ring_forward(c, i, stashed);
            continue;
        }
        attention_of(c, i, j, &a);
        sp_attn_fwd_insert(&c->ctx, heads, &a.at, j == 0 ? stashed : 0);
    }
    if (exchanges(c)) {
        t->o = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->q_width, "o");
        sp_context_collect(c, SP_TENSOR_O, parts, t->o);
    }
    c->ctx.exchanged = false;
}

/*
 * The gradients of the keys and values that a part of the tokens saw, in the order of attention_of: made by the
 * last ones of the sequence, which are the first to come back, and complete in each slice once its own
 * backward added to them. Whether they are made now.
 */
static bool take_dkv(struct sp_op_ctx *c, int i, int part, struct sp_pool *pool,
                     starpu_data_handle_t dkv[SP_MAX_SLICES])
{
    const struct sp_shape *heads = sp_op_heads(c, 0);
    bool first = false;
    int n = 0;

    for (int j = 0; j <= c->slice; j++) {
        struct sp_layer_flight *t = &c->fl[j - c->slice].layers[i];
        size_t rows = (size_t)sp_op_cut(c)->shapes[j].rows;

        for (int k = 0; k < (j < c->slice ? parts_of(c) : part + 1); k++) {
            starpu_data_handle_t *own = t->heads ? &t->heads[k].dkv : &t->dkv;

            first |= !*own;
            if (!*own)
                *own = take(c, exchanges(c) ? c->st->local : pool, rows * (size_t)heads->kv_width,
                            "dkv");
            dkv[n++] = *own;
        }
    }
    return first;
}

/* The gradient of part j's queries, and that of their output. */
static starpu_data_handle_t take_dq(struct sp_op_ctx *c, int i, int j, struct sp_pool *pool)
{
    struct sp_layer_flight *t = &c->fl->layers[i];
    const struct sp_shape *heads = sp_op_heads(c, j);
    starpu_data_handle_t *dq = t->heads ? &t->heads[j].dq : &t->dq;

    *dq = take(c, exchanges(c) ? c->st->local : pool, (size_t)heads->rows * (size_t)heads->q_width,
               "dq");
    return *dq;
}

/* Back to all heads of this process's tokens. */
static void collect_gradients(struct sp_op_ctx *c, int i, struct sp_pool *pool)
{
    struct sp_layer_flight *t = &c->fl->layers[i];
    starpu_data_handle_t dq[SP_MAX_SLICES], dkv[SP_MAX_SLICES];

    for (int j = 0; j < parts_of(c); j++) {
        dq[j] = t->heads[j].dq;
        dkv[j] = t->heads[j].dkv;
    }
    t->dq = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->q_width, "dq");
    sp_context_collect(c, SP_TENSOR_DQ, dq, t->dq);
    t->dkv = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->kv_width, "dkv");
    sp_context_collect(c, SP_TENSOR_DKV, dkv, t->dkv);
    for (int j = 0; j < parts_of(c); j++)
        sp_heads_drop(&t->heads[j]);
}

void sp_attention_backward(struct sp_op_ctx *c, int i, starpu_data_handle_t d_o,
                           struct sp_pool *pool, int64_t released)
{
    struct sp_layer_flight *t = &c->fl->layers[i];
    starpu_data_handle_t dkv[SP_MAX_SLICES], of_o[SP_MAX_SLICES];

    if (exchanges(c)) {
        sp_context_spread(c, SP_TENSOR_DO, d_o, of_o);
        for (int j = 0; j < parts_of(c); j++)
            t->heads[j].d_o = of_o[j];
    }
    c->ctx.exchanged = t->heads != NULL;
    for (int j = parts_of(c) - 1; j >= 0; j--) {
        bool first = take_dkv(c, i, j, pool, dkv);
        starpu_data_handle_t dq = take_dq(c, i, j, pool);
        struct attention a;

        if (c->sh->ring) {
            sp_context_ring_backward(c, i, d_o, first, released);
            continue;
        }
        attention_of(c, i, j, &a);
        sp_attn_bwd_insert(&c->ctx, sp_op_heads(c, j), &a.at, first,
                           t->heads ? t->heads[j].d_o : d_o, dq, dkv, j == 0 ? released : 0);
    }
    if (exchanges(c))
        collect_gradients(c, i, pool);
    c->ctx.exchanged = false;
}

/* ---- what is kept of it ---------------------------------------------------------------------- */

void sp_drop(starpu_data_handle_t *handle)
{
    if (*handle)
        sp_pool_put(*handle);
    *handle = NULL;
}

void sp_heads_drop(struct sp_heads *heads)
{
    starpu_data_handle_t *const all[] = {
        &heads->q,   &heads->kv, &heads->o,  &heads->lse, &heads->dkv, &heads->u, &heads->g,
        &heads->d_o, &heads->dq, &heads->du, &heads->dy,  &heads->dr,  &heads->n1};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sp_drop(all[i]);
}

void sp_attention_drop(const struct sp_op_ctx *c, struct sp_layer_flight *t, bool q, bool kv,
                       bool o)
{
    if (q)
        sp_drop(&t->q);
    if (kv)
        sp_drop(&t->kv);
    if (o) {
        sp_drop(&t->o);
        sp_drop(&t->lse);
    }
    for (int j = 0; t->heads && j < parts_of(c); j++) {
        if (q)
            sp_drop(&t->heads[j].q);
        if (kv)
            sp_drop(&t->heads[j].kv);
        if (o) {
            sp_drop(&t->heads[j].o);
            sp_drop(&t->heads[j].lse);
        }
    }
}
