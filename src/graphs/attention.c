#include "graphs/attention.h"
#include "graphs/context/heads.h"
#include "graphs/context/ring.h"

static starpu_data_handle_t take(const struct sp_op_ctx *c, struct sp_pool *pool, size_t elements,
                                 const char *name)
{
    return sp_pool_get(pool, elements, sp_shape_elem(c->sh), name);
}

/* ---- what attention reads ----------------------------------------------------------------- */

/* Of attention, the tokens of one member of the stage: all of the slice where heads are not shared out. */
static struct sp_heads heads_of(const struct sp_layer_flight *t, int member)
{
    return t->heads ? t->heads[member]
                    : (struct sp_heads){.q = t->q, .kv = t->kv, .o = t->o, .lse = t->lse};
}

static int sharers(const struct sp_op_ctx *c)
{
    return sp_shape_sharers(c->sh);
}

/* Of attention: this process's heads. */
static const struct sp_shape *heads_shape(const struct sp_op_ctx *c)
{
    return sp_op_cut(c)->heads ? &sp_op_cut(c)->heads[c->slice] : c->sh;
}

/* Attention in layer i of the tokens of one member of this slice over the keys and values up to them: of the
 * slices before, of members before. */
struct attention {
    struct sp_attn at;
    int len[SP_MAX_SLICES];
    starpu_data_handle_t kv[SP_MAX_SLICES];
};

static void attention_of(const struct sp_op_ctx *c, int i, int member, struct attention *a)
{
    const struct sp_heads h = heads_of(&c->fl->layers[i], member);
    int n = 0, pos = 0;

    for (int j = 0; j <= c->slice; j++)
        for (int k = 0; k < (j < c->slice ? sharers(c) : member + 1); k++, n++) {
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

    if (!t->heads)
        return;
    sp_context_spread(c, SP_TENSOR_Q, t->q, parts);
    sp_drop(&t->q);
    for (int j = 0; j < sharers(c); j++)
        t->heads[j].q = parts[j];
    if (!keys)
        return;
    sp_context_spread(c, SP_TENSOR_KV, t->kv, parts);
    sp_drop(&t->kv);
    for (int j = 0; j < sharers(c); j++)
        t->heads[j].kv = parts[j];
}

/* ---- tasks --------------------------------------------------------------------------------- */

void sp_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool)
{
    const struct sp_shape *heads = heads_shape(c);
    struct sp_layer_flight *t = &c->fl->layers[i];
    size_t T = (size_t)heads->rows;
    starpu_data_handle_t parts[SP_MAX_SLICES];

    c->ctx.exchanged = t->heads != NULL;
    for (int j = 0; j < sharers(c); j++) {
        struct attention a;
        starpu_data_handle_t lse =
            take(c, c->st->local, sp_shape_f32(heads, T * (size_t)heads->model.heads), "lse");

        parts[j] = take(c, t->heads ? c->st->local : pool, T * (size_t)heads->q_width, "o");
        *(t->heads ? &t->heads[j].o : &t->o) = parts[j];
        *(t->heads ? &t->heads[j].lse : &t->lse) = lse;
        if (heads->ring) {
            sp_context_ring_forward(c, i, stashed);
            continue;
        }
        attention_of(c, i, j, &a);
        sp_attn_fwd_insert(&c->ctx, heads, &a.at, j == 0 ? stashed : 0);
    }
    if (t->heads) {
        t->o = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->q_width, "o");
        sp_context_collect(c, SP_TENSOR_O, parts, t->o);
    }
    c->ctx.exchanged = false;
}

/*
 * The gradients of the keys and values that the tokens of a member saw, in the order of attention_of: made by the
 * last ones of the sequence, which are the first to come back, and complete in each slice once its own
 * backward added to them. Whether they are made now.
 */
static bool take_dkv(struct sp_op_ctx *c, int i, int member, struct sp_pool *pool,
                     starpu_data_handle_t dkv[SP_MAX_SLICES])
{
    const struct sp_shape *heads = heads_shape(c);
    bool first = false;
    int n = 0;

    for (int j = 0; j <= c->slice; j++) {
        struct sp_layer_flight *t = &c->fl[j - c->slice].layers[i];
        size_t rows = (size_t)sp_op_cut(c)->shapes[j].rows;

        for (int k = 0; k < (j < c->slice ? sharers(c) : member + 1); k++) {
            starpu_data_handle_t *own = t->heads ? &t->heads[k].dkv : &t->dkv;

            first |= !*own;
            if (!*own)
                *own =
                    take(c, t->heads ? c->st->local : pool, rows * (size_t)heads->kv_width, "dkv");
            dkv[n++] = *own;
        }
    }
    return first;
}

void sp_attention_backward(struct sp_op_ctx *c, int i, starpu_data_handle_t d_o,
                           struct sp_pool *pool, int64_t released)
{
    const struct sp_shape *sh = c->sh, *heads = heads_shape(c);
    struct sp_layer_flight *t = &c->fl->layers[i];
    starpu_data_handle_t dkv[SP_MAX_SLICES], of_o[SP_MAX_SLICES], of_q[SP_MAX_SLICES];
    int n = sharers(c);

    t->dq = take(c, pool, (size_t)sh->rows * (size_t)sh->q_width, "dq");
    if (t->heads)
        sp_context_spread(c, SP_TENSOR_DO, d_o, of_o);
    c->ctx.exchanged = t->heads != NULL;
    for (int j = n - 1; j >= 0; j--) {
        bool first = take_dkv(c, i, j, pool, dkv);
        struct attention a;

        if (heads->ring) {
            sp_context_ring_backward(c, i, d_o, first, released);
            continue;
        }
        of_q[j] = t->heads
                      ? take(c, c->st->local, (size_t)heads->rows * (size_t)heads->q_width, "dq")
                      : t->dq;
        attention_of(c, i, j, &a);
        sp_attn_bwd_insert(&c->ctx, heads, &a.at, first, t->heads ? of_o[j] : d_o, of_q[j], dkv,
                           j == 0 ? released : 0);
    }
    if (!t->heads) {
        c->ctx.exchanged = false;
        return;
    }
    sp_context_collect(c, SP_TENSOR_DQ, of_q, t->dq);
    for (int j = 0; j < n; j++) {
        sp_drop(&of_o[j]);
        sp_drop(&of_q[j]);
        dkv[j] = t->heads[j].dkv;
    }
    t->dkv = take(c, pool, (size_t)sh->rows * (size_t)sh->kv_width, "dkv");
    sp_context_collect(c, SP_TENSOR_DKV, dkv, t->dkv);
    c->ctx.exchanged = false;
    for (int j = 0; j < n; j++)
        sp_heads_drop(&t->heads[j]);
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
    sp_drop(&heads->q);
    sp_drop(&heads->kv);
    sp_drop(&heads->o);
    sp_drop(&heads->lse);
    sp_drop(&heads->dkv);
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
    for (int j = 0; t->heads && j < sharers(c); j++) {
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
