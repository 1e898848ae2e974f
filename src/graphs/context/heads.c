#include "graphs/context/context.h"
#include "graphs/members.h"

/* One exchange between the members, as this one sees it. */
struct exchange {
    struct sp_op_ctx *c;
    enum sp_tensor_kind kind;
    int64_t tag;
    int members, me; /* of the neighbours that divide the heads */
    int width;       /* of a row of a part */
    size_t elements; /* in one part */
    bool joined;     /* members have the tokens in turns: all parts in one tensor */
};

static bool is_keys(const struct exchange *e)
{
    return e->kind == SP_TENSOR_KV || e->kind == SP_TENSOR_DKV;
}

static struct exchange begin(struct sp_op_ctx *c, enum sp_tensor_kind kind)
{
    struct sp_graph *g = c->g;
    const struct sp_shape *heads = &sp_op_cut(c)->heads[c->slice];
    struct exchange e = {
        .c = c,
        .kind = kind,
        .tag = sp_exchange_tag(g),
        .members = g->shape.ulysses,
        .me = sp_graph_member(g) % g->shape.ulysses,
        .joined = c->sh->stride > 1,
    };

    e.width = is_keys(&e) ? heads->kv_width : heads->q_width;
    e.elements = (size_t)c->sh->rows * (size_t)e.width;
    return e;
}

static struct sp_tensor *take(const struct exchange *e)
{
    return sp_pool_get(e->c->st->local, e->elements, sp_shape_elem(e->c->sh),
                       sp_tensor_name(e->kind));
}

static void take_parts(const struct exchange *e, struct sp_tensor **parts)
{
    for (int j = 0; j < e->members; j++)
        parts[j] = take(e);
}

/* Sends out[j] to member j and receives in[j] from it; this member's own part stays. Every member
 * begins with its neighbour, so that no two send to the same one at a time. */
static void swap(const struct exchange *e, struct sp_tensor *const *out, struct sp_tensor **in)
{
    for (int k = 1; k < e->members; k++) {
        int to = (e->me + k) % e->members, from = (e->me - k + e->members) % e->members;
        int first = sp_graph_member(e->c->g) - e->me;

        sp_member_send(e->c, e->kind, out[to], sp_context_pipeline(e->c->g, first + to), e->tag);
        in[from] = take(e);
        sp_member_receive(e->c, in[from], sp_context_pipeline(e->c->g, first + from), e->tag);
    }
    in[e->me] = out[e->me];
}

/* Gives back all parts except this member's own. */
static void drop_others(const struct exchange *e, struct sp_tensor *const *parts)
{
    for (int j = 0; j < e->members; j++)
        if (j != e->me)
            sp_pool_put(parts[j]);
}

void sp_context_spread(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *whole,
                       struct sp_tensor **parts)
{
    struct exchange e = begin(c, kind);
    struct sp_tensor *out[e.members], *in[e.members];

    take_parts(&e, out);
    sp_heads_split_insert(&c->ctx, c->sh, is_keys(&e), whole, out);
    swap(&e, out, e.joined ? in : parts);
    drop_others(&e, out);
    if (!e.joined)
        return;
    parts[0] = sp_pool_get(c->st->local, e.elements * (size_t)e.members, sp_shape_elem(c->sh),
                           sp_tensor_name(kind));
    sp_op_await(c);
    sp_turns_join_insert(&c->ctx, c->sh, e.width, in, parts[0]);
    c->ctx.exchanged = false;
    drop_others(&e, in);
    sp_pool_put(in[e.me]);
}

void sp_context_collect(struct sp_op_ctx *c, enum sp_tensor_kind kind,
                        struct sp_tensor *const *parts, struct sp_tensor *whole)
{
    struct exchange e = begin(c, kind);
    struct sp_tensor *in[e.members], *out[e.members];
    int each = e.members / c->sh->model.kv_heads; /* members that hold the same keys and values */

    if (e.joined) {
        take_parts(&e, out);
        sp_turns_split_insert(&c->ctx, c->sh, e.width, parts[0], out);
    }
    swap(&e, e.joined ? out : parts, in);
    if (e.joined)
        drop_others(&e, out);
    for (int j = 0; kind == SP_TENSOR_DKV && j < e.members; j++)
        if (each > 1 && j % each)
            sp_sum_insert(&c->ctx, c->sh->dtype, in[j / each * each], in[j], false);
    sp_op_await(c);
    sp_heads_join_insert(&c->ctx, c->sh, is_keys(&e), in, whole);
    drop_others(&e, in);
    if (e.joined)
        sp_pool_put(in[e.me]);
}
