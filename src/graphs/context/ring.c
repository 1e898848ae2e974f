#include "graphs/context/context.h"
#include "graphs/members.h"

/* The tensors that pass around the ring: of each slice, one from each neighbour with which this
 * member divides the heads. */
struct passing {
    struct sp_op_ctx *c;
    const struct sp_shape *heads;
    struct sp_layer_activations *t; /* the queries' activations */
    int parts, n, len[SP_MAX_SLICES];
    struct sp_tensor *kv[SP_MAX_SLICES], *dkv[SP_MAX_SLICES];
    struct sp_tensor *next[SP_MAX_SLICES];   /* kv of the next turn */
    struct sp_attn_keys keys[SP_MAX_SLICES]; /* keys of this turn */
    struct sp_tensor *sum[SP_MAX_SLICES];    /* [parts] sums o or dq, see struct sp_attn */
};

static void begin(struct sp_op_ctx *c, int i, struct passing *p)
{
    p->c = c;
    p->heads = sp_op_heads(c, 0);
    p->t = &c->fl->layers[i];
    p->parts = c->sh->ulysses;
    p->n = 0;
    for (int j = 0; j <= c->slice; j++)
        for (int k = 0; k < p->parts; k++, p->n++) {
            const struct sp_heads *of = &c->fl[j - c->slice].layers[i].heads[k];

            p->len[p->n] = sp_op_cut(c)->shapes[j].seq;
            p->kv[p->n] = of->kv;
            p->dkv[p->n] = of->dkv;
        }
    for (int k = 0; k < p->parts; k++)
        p->sum[k] = sp_take_sum(c, p->heads, p->heads->ring);
}

/* Sends this turn's tensors to the next member and receives those of the previous one in next[]: in
 * the buffers of `home` or, if that is NULL, in new ones. */
static void pass_on(const struct passing *p, enum sp_tensor_kind kind, struct sp_tensor *const *now,
                    struct sp_tensor *const *home, struct sp_tensor **next)
{
    struct sp_op_ctx *c = p->c;
    int all = sp_graph_members(c->g), me = sp_graph_member(c->g), step = c->sh->ulysses;

    for (int j = 0; j < p->n; j++) {
        size_t n = (size_t)c->sh->batch * (size_t)p->len[j] * (size_t)p->heads->kv_width;
        int64_t tag = sp_exchange_tag(c->g);

        sp_member_send(c, kind, now[j], sp_context_pipeline(c->g, (me + step) % all), tag);
        next[j] = home ? home[j]
                       : sp_pool_get(c->st->local, n, sp_shape_elem(c->sh), sp_tensor_name(kind));
        sp_member_receive(c, next[j], sp_context_pipeline(c->g, (me + all - step) % all), tag);
    }
}

/* Continues with the tensors that arrived. Gives back the old ones, except in turn 0: those are
 * this member's own. */
static void turn(const struct passing *p, int k, struct sp_tensor **now,
                 struct sp_tensor *const *next)
{
    for (int j = 0; j < p->n; j++) {
        if (k > 0)
            sp_pool_put(now[j]);
        now[j] = next[j];
    }
}

static bool is_last(const struct passing *p, int k)
{
    return k == p->heads->ring - 1;
}

/* Lists the keys and values of group `group` of neighbours. Each of these has two pieces of a slice
 * (sp_shape_member). */
static void list_keys(struct passing *p, int group)
{
    int all = sp_graph_members(p->c->g), begin = 0;

    for (int j = 0; j < p->n; j++) {
        int part = group * p->parts + j % p->parts, half = p->len[j] / 2;

        p->keys[j] = (struct sp_attn_keys){.first = begin + part * half,
                                           .second = begin + sp_shape_second(p->heads, part) * half,
                                           .len = p->len[j],
                                           .kv = p->kv[j],
                                           .dkv = p->dkv[j]};
        if (j % p->parts == p->parts - 1)
            begin += p->len[j] * all;
    }
}

/* Begins turn k; the transfer of its keys and values to the next member is submitted first. */
static void begin_turn(struct passing *p, int k)
{
    int groups = p->heads->ring, group = sp_graph_member(p->c->g) / p->parts;

    if (!is_last(p, k))
        pass_on(p, SP_TENSOR_KV, p->kv, NULL, p->next);
    if (k > 0)
        sp_op_await(p->c);
    list_keys(p, (group + groups - k) % groups);
}

/* Attention of part `part` of this turn's queries. */
static struct sp_attn attention_of(const struct passing *p, int k, int part)
{
    const struct sp_heads *h = &p->t->heads[part];
    const struct sp_shape *sh = p->c->sh;
    int own = sp_graph_member(p->c->g) % p->parts, half = sh->seq / 2;

    return (struct sp_attn){.q_len = sh->seq,
                            .q_pos = sh->first + (part - own) * half,
                            .q_second = sh->second + (part - own) * half,
                            .begins = k == 0,
                            .ends = is_last(p, k),
                            .n_keys = p->n,
                            .keys = p->keys,
                            .q = h->q,
                            .o = h->o,
                            .lse = h->lse,
                            .sum = p->sum[part]};
}

static void end_turn(struct passing *p, int k)
{
    if (!is_last(p, k)) {
        turn(p, k, p->kv, p->next);
        return;
    }
    for (int j = 0; j < p->n; j++)
        sp_pool_put(p->kv[j]);
    for (int j = 0; j < p->parts; j++)
        sp_pool_drop(&p->sum[j]);
}

void sp_context_ring_forward(struct sp_op_ctx *c, int i, int64_t stashed)
{
    struct passing p;

    begin(c, i, &p);
    for (int k = 0; k < p.heads->ring; k++) {
        begin_turn(&p, k);
        for (int j = 0; j < p.parts; j++) {
            struct sp_attn now = attention_of(&p, k, j);

            sp_attn_fwd_insert(&c->ctx, p.heads, &now, k == 0 && j == 0 ? stashed : 0);
        }
        end_turn(&p, k);
    }
}

void sp_context_ring_backward(struct sp_op_ctx *c, int i, bool first, int64_t released)
{
    struct sp_tensor *next[SP_MAX_SLICES], *home[SP_MAX_SLICES];
    struct passing p;

    begin(c, i, &p);
    for (int j = 0; j < p.n; j++)
        home[j] = p.dkv[j];
    for (int k = 0; k < p.heads->ring; k++) {
        bool last = is_last(&p, k);

        begin_turn(&p, k);
        for (int j = p.parts - 1; j >= 0; j--) {
            struct sp_attn now = attention_of(&p, k, j);

            sp_attn_bwd_insert(&c->ctx, p.heads, &now, first && k == 0 && j == p.parts - 1,
                               p.t->heads[j].d_o, p.t->heads[j].dq, last && j == 0 ? released : 0);
        }
        end_turn(&p, k);
        pass_on(&p, SP_TENSOR_DKV, p.dkv, last ? home : NULL, next);
        turn(&p, k, p.dkv, next);
    }
}
