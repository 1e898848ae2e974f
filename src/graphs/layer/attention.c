#include "graphs/layer/attention.h"
#include "graphs/context/context.h"
#include "graphs/offload/streamed_keys.h"

static struct sp_tensor *take(const struct sp_op_ctx *c, struct sp_pool *pool, size_t elements,
                              const char *name)
{
    return sp_pool_get(pool, elements, sp_shape_elem(c->sh), name);
}

/* ---- what attention reads ----------------------------------------------------------------- */

static int parts_of(const struct sp_op_ctx *c)
{
    return sp_shape_parts(c->sh);
}

/* The tokens of slice j, as attention has them in each part. */
static const struct sp_shape *tokens_of(const struct sp_op_ctx *c, int j)
{
    const struct sp_cut *cut = sp_op_cut(c);

    return cut->heads ? &cut->heads[j] : &cut->shapes[j];
}

/* True if members exchange tokens for heads: attention works on this process's heads of all tokens,
 * the rest of the layer on all heads of its own tokens. */
static bool exchanges(const struct sp_op_ctx *c)
{
    return sp_shape_exchanges(c->sh);
}

/* The shape that sizes attention's buffers, as sp_op_room does for those of an op. Exchanged
 * tensors are messages, so their buffers have their own size. */
static const struct sp_shape *room_of(const struct sp_op_ctx *c, const struct sp_shape *heads)
{
    return exchanges(c) || sp_op_room(c) == c->sh ? heads : sp_shape_scratch(heads);
}

/* The rounds of a layer's attention. */
struct rounds {
    struct sp_key_rounds keys;
    struct sp_tensor *sum[SP_MAX_SLICES]; /* of each part of the tokens, over the rounds */
};

static void plan_rounds(struct sp_op_ctx *c, int i, bool gradients, struct rounds *r)
{
    r->keys.items = c->slice;
    r->keys.gradients = gradients;
    for (int j = 0; j < c->slice; j++)
        r->keys.evicted[j] = c->fl[j - c->slice].layers[i].evicted;
    sp_key_rounds_plan(c, &r->keys);
}

/* In one round, attention of one part of this slice's tokens over keys and values of earlier slices
 * and of earlier parts. */
struct attention {
    struct sp_attn at;
    struct sp_attn_keys keys[SP_MAX_SLICES];
};

static void attention_of(const struct sp_op_ctx *c, int i, int part, const struct rounds *r,
                         int round, struct attention *a)
{
    const struct sp_heads *h = &c->fl->layers[i].heads[part];
    int n = 0, pos = 0;
    size_t at = 0;

    for (int j = 0; j <= c->slice; j++)
        for (int k = 0; k < (j < c->slice ? parts_of(c) : part + 1); k++) {
            const struct sp_heads *of = &c->fl[j - c->slice].layers[i].heads[k];
            int len = tokens_of(c, j)->seq;

            a->keys[n] =
                (struct sp_attn_keys){.first = pos, .len = len, .kv = of->kv, .dkv = of->dkv};
            n += j >= c->given /* other stages attend to those before */ &&
                 sp_key_rounds_has(c, &r->keys, round, j, k, &at, &a->keys[n]);
            pos += len;
        }
    a->at = (struct sp_attn){
        .q_len = sp_op_heads(c, part)->seq,
        .q_pos = pos - sp_op_heads(c, part)->seq,
        .begins = round == 0,
        .ends = round == r->keys.n && !c->given,
        .n_keys = n,
        .keys = a->keys,
        .q = h->q,
        .o = h->o,
        .lse = h->lse,
        .sum = r->sum[part],
    };
}

bool sp_attention_has_keys(const struct sp_layer_activations *t)
{
    return t->heads[0].kv != NULL;
}

void sp_attention_share_out(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys)
{
    struct sp_tensor *parts[SP_MAX_SLICES];

    if (!exchanges(c))
        return;
    sp_context_spread(c, SP_TENSOR_Q, t->own.q, parts);
    sp_pool_drop(&t->own.q);
    for (int j = 0; j < parts_of(c); j++)
        t->heads[j].q = parts[j];
    if (!keys)
        return;
    sp_context_spread(c, SP_TENSOR_KV, t->own.kv, parts);
    sp_pool_drop(&t->own.kv);
    for (int j = 0; j < parts_of(c); j++)
        t->heads[j].kv = parts[j];
}

/* ---- tasks --------------------------------------------------------------------------------- */

/* Keeps the sum of each part of the tokens if results of other stages are still to be added; else
 * drops it. */
static void end_sums(struct sp_op_ctx *c, int i, struct sp_tensor **sum)
{
    struct sp_layer_activations *t = &c->fl->layers[i];

    for (int j = 0; j < parts_of(c); j++)
        if (c->given)
            t->heads[j].sum = sum[j];
        else
            sp_pool_drop(&sum[j]);
}

static void forward(struct sp_op_ctx *c, int i, int64_t stashed)
{
    const struct sp_shape *heads = sp_op_heads(c, 0);
    struct rounds r;

    plan_rounds(c, i, false, &r);
    for (int j = 0; j < parts_of(c); j++)
        r.sum[j] = sp_take_sum(c, heads, r.keys.n + 1 + (c->given > 0));
    for (int round = 0; round <= r.keys.n; round++) {
        sp_key_rounds_begin(c, round, &r.keys);
        for (int j = 0; j < parts_of(c); j++) {
            struct attention a;

            attention_of(c, i, j, &r, round, &a);
            sp_attn_fwd_insert(&c->ctx, heads, &a.at, round == 0 && j == 0 ? stashed : 0);
        }
        sp_key_rounds_end(c, round, &r.keys);
    }
    end_sums(c, i, r.sum);
    sp_streamed_keys_evict(c, i);
}

/* Exchanges the outputs back to all heads of this process's tokens. */
static void collect_outputs(struct sp_op_ctx *c, int i, struct sp_pool *pool)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_tensor *parts[SP_MAX_SLICES];

    for (int j = 0; j < parts_of(c); j++)
        parts[j] = t->heads[j].o;
    t->own.o = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->q_width, "o");
    sp_context_collect(c, SP_TENSOR_O, parts, t->own.o);
}

void sp_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool)
{
    const struct sp_shape *heads = sp_op_heads(c, 0), *room = stashed ? heads : room_of(c, heads);
    struct sp_layer_activations *t = &c->fl->layers[i];
    size_t T = (size_t)room->rows;

    if (t->heads != &t->own)
        sp_op_await(c);
    for (int j = 0; j < parts_of(c); j++) {
        struct sp_tensor *lse =
            take(c, c->st->local, sp_shape_f32(room, T * (size_t)heads->model.heads), "lse");

        t->heads[j].o =
            take(c, exchanges(c) ? c->st->local : pool, T * (size_t)heads->q_width, "o");
        t->heads[j].lse = lse;
    }
    if (heads->ring > 1)
        sp_context_ring_forward(c, i, stashed);
    else if (c->attend)
        c->attend(c, i, NULL, stashed);
    else
        forward(c, i, stashed);
    if (exchanges(c) && !c->attend)
        collect_outputs(c, i, pool);
    c->ctx.exchanged = false;
}

/*
 * Takes buffers for the gradients of the keys and values that a part of the tokens attended to. The
 * last slices of a sequence make them, because their backwards run first; those of a slice are
 * complete after its own backward. Returns true if they are new.
 */
static bool take_dkv(struct sp_op_ctx *c, int i, int part, struct sp_pool *pool)
{
    const struct sp_shape *heads = sp_op_heads(c, 0);
    bool first = false;

    for (int j = c->given; j <= c->slice; j++) {
        struct sp_layer_activations *t = &c->fl[j - c->slice].layers[i];
        size_t rows = (size_t)tokens_of(c, j)->rows;

        for (int k = 0; !t->evicted && k < (j < c->slice ? parts_of(c) : part + 1); k++) {
            struct sp_tensor **own = &t->heads[k].dkv;

            first |= !*own;
            if (!*own)
                *own = take(c, exchanges(c) ? c->st->local : pool, rows * (size_t)heads->kv_width,
                            "dkv");
        }
    }
    return first;
}

/* Takes a buffer for the gradient of part j's queries. */
static void take_dq(struct sp_op_ctx *c, int i, int j, struct sp_pool *pool)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    const struct sp_shape *heads = room_of(c, sp_op_heads(c, j));
    struct sp_tensor **dq = &t->heads[j].dq;

    *dq = take(c, exchanges(c) ? c->st->local : pool, (size_t)heads->rows * (size_t)heads->q_width,
               "dq");
}

/* Exchanges the gradients back to all heads of this process's tokens. */
static void collect_gradients(struct sp_op_ctx *c, int i, struct sp_pool *pool)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_tensor *dq[SP_MAX_SLICES], *dkv[SP_MAX_SLICES];

    if (c->share)
        c->share(c, i);
    for (int j = 0; j < parts_of(c); j++) {
        dq[j] = t->heads[j].dq;
        dkv[j] = t->heads[j].dkv;
    }
    t->own.dq = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->q_width, "dq");
    sp_context_collect(c, SP_TENSOR_DQ, dq, t->own.dq);
    t->own.dkv = take(c, pool, (size_t)c->sh->rows * (size_t)c->sh->kv_width, "dkv");
    sp_context_collect(c, SP_TENSOR_DKV, dkv, t->own.dkv);
    for (int j = 0; j < parts_of(c); j++)
        sp_heads_drop(&t->heads[j]);
}

/* Submits the parts from the last to the first. `first`: the last part makes the gradients of keys
 * and values instead of adding to them. */
static void backward(struct sp_op_ctx *c, int i, bool first, int64_t released)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int last = parts_of(c) - 1;
    struct rounds r;

    plan_rounds(c, i, true, &r);
    for (int j = 0; j <= last; j++)
        r.sum[j] = sp_take_sum(c, sp_op_heads(c, j), r.keys.n + 1 + (c->given > 0));
    for (int round = 0; round <= r.keys.n; round++) {
        bool makes = round ? !r.keys.stream[round - 1].made : first;

        sp_key_rounds_begin(c, round, &r.keys);
        for (int j = last; j >= 0; j--) {
            struct attention a;

            attention_of(c, i, j, &r, round, &a);
            sp_attn_bwd_insert(&c->ctx, sp_op_heads(c, j), &a.at, makes && j == last,
                               t->heads[j].d_o, t->heads[j].dq,
                               round == r.keys.n && j == 0 ? released : 0);
        }
        sp_key_rounds_end(c, round, &r.keys);
    }
    end_sums(c, i, r.sum);
}

void sp_attention_share_out_gradient(struct sp_op_ctx *c, struct sp_layer_activations *t)
{
    struct sp_tensor *parts[SP_MAX_SLICES];

    if (!exchanges(c))
        return;
    sp_context_spread(c, SP_TENSOR_DO, t->own.d_o, parts);
    for (int j = 0; j < parts_of(c); j++)
        t->heads[j].d_o = parts[j];
}

void sp_attention_backward(struct sp_op_ctx *c, int i, struct sp_pool *pool, int64_t released)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    bool first = !c->attend && take_dkv(c, i, parts_of(c) - 1, pool);

    if (!c->attend)
        sp_attention_share_out_gradient(c, t);
    if (t->heads != &t->own)
        sp_op_await(c);
    for (int j = parts_of(c) - 1; j >= 0; j--)
        take_dq(c, i, j, pool);
    if (c->sh->ring > 1)
        sp_context_ring_backward(c, i, first, released);
    else if (c->attend)
        c->attend(c, i, t->heads[0].d_o, released);
    else
        backward(c, i, first, released);
    if (exchanges(c) && !c->attend)
        collect_gradients(c, i, pool);
    c->ctx.exchanged = false;
}

void sp_attention_collect(struct sp_op_ctx *c, int i)
{
    if (exchanges(c))
        (c->ctx.pass == 'F' ? collect_outputs : collect_gradients)(c, i, c->st->local);
    c->ctx.exchanged = false;
}

/* ---- what is kept of it ---------------------------------------------------------------------- */

void sp_heads_drop(struct sp_heads *heads)
{
    struct sp_tensor **const all[] = {&heads->q,  &heads->kv, &heads->o,   &heads->lse, &heads->dkv,
                                      &heads->u,  &heads->g,  &heads->d_o, &heads->dq,  &heads->du,
                                      &heads->dy, &heads->dr, &heads->n1};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sp_pool_drop(all[i]);
}

struct sp_tensor **sp_heads_tensor(struct sp_heads *heads, enum sp_tensor_kind kind)
{
    switch (kind) {
    case SP_TENSOR_Q:
        return &heads->q;
    case SP_TENSOR_KV:
        return &heads->kv;
    case SP_TENSOR_O:
        return &heads->o;
    case SP_TENSOR_LSE:
        return &heads->lse;
    case SP_TENSOR_DO:
        return &heads->d_o;
    case SP_TENSOR_DQ:
        return &heads->dq;
    default:
        return &heads->dkv;
    }
}

void sp_attention_drop(const struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                       bool o)
{
    if (q)
        sp_pool_drop(&t->own.q);
    if (kv)
        sp_pool_drop(&t->own.kv);
    if (o) {
        sp_pool_drop(&t->own.o);
        sp_pool_drop(&t->own.lse);
    }
    for (int j = 0; j < parts_of(c); j++) {
        if (q)
            sp_pool_drop(&t->heads[j].q);
        if (kv)
            sp_pool_drop(&t->heads[j].kv);
        if (o) {
            sp_pool_drop(&t->heads[j].o);
            sp_pool_drop(&t->heads[j].lse);
        }
    }
}
