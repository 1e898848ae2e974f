#include "graphs/context/context.h"
#include "graphs/members.h"

/* The tensors that pass around the ring, one per slice. */
struct passing {
    struct sp_op_ctx *c;
    const struct sp_layer_activations *t; /* the queries' activations */
    int n, len[SP_MAX_SLICES];
    struct sp_tensor *kv[SP_MAX_SLICES], *dkv[SP_MAX_SLICES];
    struct sp_tensor *next[SP_MAX_SLICES];   /* kv of the next turn */
    struct sp_attn_keys keys[SP_MAX_SLICES]; /* keys of this turn */
    struct sp_tensor *sum;                   /* sums o or dq, see struct sp_attn */
};

static void begin(struct sp_op_ctx *c, int i, struct passing *p)
{
    p->c = c;
    p->t = &c->fl->layers[i];
    p->n = c->slice + 1;
    for (int j = 0; j < p->n; j++) {
        const struct sp_layer_activations *t = &c->fl[j - c->slice].layers[i];

        p->len[j] = sp_op_cut(c)->shapes[j].seq;
        p->kv[j] = t->own.kv;
        p->dkv[j] = t->own.dkv;
    }
    p->sum = sp_take_sum(c, c->sh, sp_graph_members(c->g));
}

/* Sends this turn's tensors to the next member and receives those of the previous one in next[]: in
 * the buffers of `home` or, if that is NULL, in new ones. */
static void pass_on(const struct passing *p, enum sp_tensor_kind kind, struct sp_tensor *const *now,
                    struct sp_tensor *const *home, struct sp_tensor **next)
{
    struct sp_op_ctx *c = p->c;
    int members = sp_graph_members(c->g), me = sp_graph_member(c->g);

    for (int j = 0; j < p->n; j++) {
        size_t n = (size_t)c->sh->batch * (size_t)p->len[j] * (size_t)c->sh->kv_width;
        int64_t tag = sp_exchange_tag(c->g);

        sp_member_send(c, kind, now[j], sp_context_pipeline(c->g, (me + 1) % members), tag);
        next[j] = home ? home[j]
                       : sp_pool_get(c->st->local, n, sp_shape_elem(c->sh), sp_tensor_name(kind));
        sp_member_receive(c, next[j], sp_context_pipeline(c->g, (me + members - 1) % members), tag);
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
    return k == sp_graph_members(p->c->g) - 1;
}

/* Lists the keys and values of a member. It has two parts of each slice cut in 2t: the k-th from
 * the beginning and the k-th from the end. */
static void list_keys(struct passing *p, int member)
{
    int members = sp_graph_members(p->c->g);

    for (int j = 0, begin = 0; j < p->n; begin += p->len[j++] * members) {
        int half = p->len[j] / 2;

        p->keys[j] = (struct sp_attn_keys){.first = begin + member * half,
                                           .second = begin + (2 * members - 1 - member) * half,
                                           .len = p->len[j],
                                           .kv = p->kv[j],
                                           .dkv = p->dkv[j]};
    }
}

/* Begins turn k; the transfer of its keys and values to the next member is submitted first. */
static struct sp_attn begin_turn(struct passing *p, int k)
{
    int members = sp_graph_members(p->c->g), me = sp_graph_member(p->c->g);
    const struct sp_layer_activations *t = p->t;

    if (!is_last(p, k))
        pass_on(p, SP_TENSOR_KV, p->kv, NULL, p->next);
    if (k > 0)
        sp_op_await(p->c);
    list_keys(p, (me + members - k) % members);
    return (struct sp_attn){.q_len = p->c->sh->seq,
                            .q_pos = p->c->sh->first,
                            .q_second = p->c->sh->second,
                            .begins = k == 0,
                            .ends = is_last(p, k),
                            .n_keys = p->n,
                            .keys = p->keys,
                            .q = t->own.q,
                            .o = t->own.o,
                            .lse = t->own.lse,
                            .sum = p->sum};
}

static void end_turn(struct passing *p, int k)
{
    p->c->ctx.exchanged = false;
    if (!is_last(p, k)) {
        turn(p, k, p->kv, p->next);
        return;
    }
    for (int j = 0; j < p->n; j++)
        sp_pool_put(p->kv[j]);
    sp_pool_drop(&p->sum);
}

void sp_context_ring_forward(struct sp_op_ctx *c, int i, int64_t stashed)
{
    struct passing p;

    begin(c, i, &p);
    for (int k = 0; k < sp_graph_members(c->g); k++) {
        struct sp_attn now = begin_turn(&p, k);

        sp_attn_fwd_insert(&c->ctx, c->sh, &now, k == 0 ? stashed : 0);
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
    for (int k = 0; k < sp_graph_members(c->g); k++) {
        struct sp_attn now = begin_turn(&p, k);
        bool last = is_last(&p, k);

        sp_attn_bwd_insert(&c->ctx, c->sh, &now, first && k == 0, p.t->own.d_o, p.t->own.dq,
                           last ? released : 0);
        end_turn(&p, k);
        pass_on(&p, SP_TENSOR_DKV, p.dkv, last ? home : NULL, next);
        turn(&p, k, p.dkv, next);
    }
}
