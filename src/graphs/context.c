#include "graphs/context.h"
#include "graphs/message.h"

/* Tags come again after so many exchanges: no two of them are ever on their way. */
enum { EXCHANGES = 1 << 16 };

/* One exchange between the members, as this one sees it. */
struct exchange {
    struct sp_op_ctx *c;
    struct sp_tensor_id tensor;
    int64_t tag;
    int members, me;
    size_t elements; /* of a part */
};

static bool is_keys(const struct exchange *e)
{
    return e->tensor.kind == SP_TENSOR_KV || e->tensor.kind == SP_TENSOR_DKV;
}

static struct exchange begin(struct sp_op_ctx *c, enum sp_tensor_kind kind)
{
    struct sp_graph *g = c->g;
    struct sp_shape heads;
    struct exchange e = {
        .c = c,
        .tensor = {.kind = (unsigned char)kind,
                   .slice = (unsigned short)c->slice,
                   .mb = c->mb,
                   .at = c->ctx.layer},
        .tag = sp_tag(g, SP_MSG_EXCHANGE, g->exchanges++ % EXCHANGES),
        .members = sp_graph_members(g),
        .me = sp_graph_member(g),
    };

    sp_shape_heads(c->sh, &heads);
    e.elements = (size_t)c->sh->rows * (size_t)(is_keys(&e) ? heads.kv_width : heads.q_width);
    return e;
}

static int rank_of(const struct exchange *e, int member)
{
    const struct sp_placement *pl = &e->c->g->place;

    return sp_stage_rank_in(pl, e->c->st->index, pl->pipeline - e->me + member);
}

static starpu_data_handle_t take(const struct exchange *e)
{
    return sp_pool_get(e->c->st->local, e->elements, sp_shape_elem(e->c->sh),
                       sp_tensor_name((enum sp_tensor_kind)e->tensor.kind));
}

/* Each member's part goes to it, and in[j] comes from member j, but this one's own; everyone begins with its
 * neighbour, so that no two send to one at a time. */
static void swap(const struct exchange *e, const starpu_data_handle_t *out,
                 starpu_data_handle_t *in)
{
    for (int k = 1; k < e->members; k++) {
        int to = (e->me + k) % e->members, from = (e->me - k + e->members) % e->members;

        sp_message_share(e->c->g, e->c->st, &e->tensor, out[to], rank_of(e, to), e->tag);
        in[from] = take(e);
        sp_transport_recv(in[from], rank_of(e, from), e->tag, NULL, NULL, NULL);
    }
    in[e->me] = out[e->me];
}

/* What is of no more use here: but of this member's own part. */
static void drop_others(const struct exchange *e, const starpu_data_handle_t *parts)
{
    for (int j = 0; j < e->members; j++)
        if (j != e->me)
            sp_pool_put(parts[j]);
}

void sp_context_spread(struct sp_op_ctx *c, enum sp_tensor_kind kind, starpu_data_handle_t whole,
                       starpu_data_handle_t *parts)
{
    struct exchange e = begin(c, kind);
    starpu_data_handle_t out[e.members];

    for (int j = 0; j < e.members; j++)
        out[j] = take(&e);
    sp_heads_split_insert(&c->ctx, c->sh, is_keys(&e), whole, out);
    swap(&e, out, parts);
    drop_others(&e, out);
}

void sp_context_collect(struct sp_op_ctx *c, enum sp_tensor_kind kind,
                        const starpu_data_handle_t *parts, starpu_data_handle_t whole)
{
    struct exchange e = begin(c, kind);
    starpu_data_handle_t in[e.members];
    int each = e.members / c->sh->model.kv_heads; /* members that have the same keys and values */

    swap(&e, parts, in);
    for (int j = 0; kind == SP_TENSOR_DKV && j < e.members; j++)
        if (each > 1 && j % each)
            sp_sum_insert(&c->ctx, c->sh->dtype, in[j / each * each], in[j], false);
    sp_heads_join_insert(&c->ctx, c->sh, is_keys(&e), in, whole);
    drop_others(&e, in);
}
