#include "graphs/context/ring.h"
#include "graphs/members.h"

/* What passes: a tensor of each slice. */
struct passing {
    struct sp_op_ctx *c;
    int n, len[SP_MAX_SLICES];
    starpu_data_handle_t kv[SP_MAX_SLICES], dkv[SP_MAX_SLICES];
    starpu_data_handle_t next[SP_MAX_SLICES]; /* kv of the turn after this one */
};

static void begin(struct sp_op_ctx *c, int i, struct passing *p)
{
    p->c = c;
    p->n = c->slice + 1;
    for (int j = 0; j < p->n; j++) {
        const struct sp_layer_flight *t = &c->fl[j - c->slice].layers[i];

        p->len[j] = sp_op_cut(c)->shapes[j].seq;
        p->kv[j] = t->kv;
        p->dkv[j] = t->dkv;
    }
}

/* Those of a turn to the next member, and into next[] those of the one before; `home` NULL: into buffers. */
static void pass_on(const struct passing *p, enum sp_tensor_kind kind,
                    const starpu_data_handle_t *now, const starpu_data_handle_t *home,
                    starpu_data_handle_t *next)
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

/* Goes on with what came; what was there goes back, but for this member's own, which the first turn has. */
static void turn(const struct passing *p, int k, starpu_data_handle_t *now,
                 const starpu_data_handle_t *next)
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

/* Turn k, in which keys and values already pass on. */
static struct sp_ring_turn begin_turn(struct passing *p, int k)
{
    int members = sp_graph_members(p->c->g), me = sp_graph_member(p->c->g);

    if (!is_last(p, k))
        pass_on(p, SP_TENSOR_KV, p->kv, NULL, p->next);
    p->c->ctx.exchanged = k > 0;
    return (struct sp_ring_turn){
        .me = me, .from = (me + members - k) % members, .n = p->n, .len = p->len, .kv = p->kv};
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
}

void sp_context_ring_forward(struct sp_op_ctx *c, int i, int64_t stashed)
{
    const struct sp_layer_flight *t = &c->fl->layers[i];
    struct passing p;

    begin(c, i, &p);
    for (int k = 0; k < sp_graph_members(c->g); k++) {
        struct sp_ring_turn now = begin_turn(&p, k);

        sp_ring_fwd_insert(&c->ctx, c->sh, &now, k == 0, t->q, t->o, t->lse, k == 0 ? stashed : 0);
        end_turn(&p, k);
    }
}

void sp_context_ring_backward(struct sp_op_ctx *c, int i, starpu_data_handle_t d_o, bool first,
                              int64_t released)
{
    const struct sp_layer_flight *t = &c->fl->layers[i];
    starpu_data_handle_t next[SP_MAX_SLICES], home[SP_MAX_SLICES];
    struct passing p;

    begin(c, i, &p);
    for (int j = 0; j < p.n; j++)
        home[j] = p.dkv[j];
    for (int k = 0; k < sp_graph_members(c->g); k++) {
        struct sp_ring_turn now = begin_turn(&p, k);
        bool last = is_last(&p, k);

        sp_ring_bwd_insert(&c->ctx, c->sh, &now, k == 0, first && k == 0, t->q, t->o, t->lse, d_o,
                           t->dq, p.dkv, last ? released : 0);
        end_turn(&p, k);
        pass_on(&p, SP_TENSOR_DKV, p.dkv, last ? home : NULL, next);
        turn(&p, k, p.dkv, next);
    }
}
