#include "graphs/gradients.h"
#include "graphs/members.h"
#include "graphs/message.h"
#include "graphs/weights/zero.h"
#include "policies/families/ownership.h"
#include "policies/lowering/pipelines.h"

/* A buffer for another one's gradient. It goes back two exchanges later, so that no more than three are
 * there, but an exchange need not wait for the sum of the one before it. */
static struct sp_tensor *take_replica_gradient(struct sp_stage *st, size_t n)
{
    if (st->replica_gradients[1])
        sp_pool_put(st->replica_gradients[1]);
    st->replica_gradients[1] = st->replica_gradients[0];
    st->replica_gradients[0] = sp_pool_get(st->local, n, sizeof(float), "replica gradient");
    return st->replica_gradients[0];
}

static void drop_replica_gradients(struct sp_stage *st)
{
    for (int i = 0; i < 2; i++) {
        if (st->replica_gradients[i])
            sp_pool_put(st->replica_gradients[i]);
        st->replica_gradients[i] = NULL;
    }
}

void sp_gradients_reduce(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_block *b = sp_stage_block(st, (enum sp_block_kind)a->tensor.block, a->tensor.at);
    int mine = a->member[0] == st->index ? 0 : 1, peer = a->member[!mine];
    struct sp_stage *other = sp_graph_stage(g, peer);
    struct sp_task_context ctx = sp_stage_context(g, st, 'T');
    struct sp_tensor *replica;

    ctx.layer = b->layer;
    if (other) { /* a + b = b + a: one sum serves both */
        if (b->counted)
            sp_sum_insert(&ctx, SP_F32, b->g, sp_stage_gradient(other, b->kind, b->layer), true);
        return;
    }
    replica = take_replica_gradient(st, sp_tensor_size(b->g) / sizeof(float));
    sp_message_post(g, st, a, mine, b->g, peer);
    sp_message_expect(g, &ctx, a, !mine, replica, peer);
    sp_sum_insert(&ctx, SP_F32, b->g, replica, false);
}

/* ---- between pipelines ----------------------------------------------------------------------- */

/* A block's gradient, or what it is packed in, between pipelines. */
struct sharing {
    struct sp_graph *g;
    struct sp_stage *st;
    struct sp_block *b;
    int64_t tag;
    struct sp_task_context ctx;
};

static void give(const struct sharing *s, struct sp_tensor *handle, int pipeline)
{
    struct sp_tensor_id t = {.kind = SP_TENSOR_GRADIENT,
                             .block = (unsigned char)s->b->kind,
                             .mb = -1,
                             .at = s->b->layer};

    sp_message_share(s->g, s->st, &t, handle, pipeline, s->tag);
}

/* Theirs, added to this process's sum. */
static void add(const struct sharing *s, struct sp_tensor *sum, int pipeline)
{
    struct sp_tensor *replica = take_replica_gradient(s->st, sp_tensor_size(sum) / sizeof(float));

    sp_message_take(s->g, s->st, replica, pipeline, s->tag);
    sp_sum_insert(&s->ctx, SP_F32, sum, replica, false);
}

/* Of so many, of which this is number q, all get the sum; pipeline(g, k) is that of another. */
static void reduce(const struct sharing *s, struct sp_tensor *sum, int q, int n,
                   int (*pipeline)(const struct sp_graph *g, int k))
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int rounds = sp_pipelines_exchanges(q, n, e);

    for (int i = 0; i < rounds; i++) {
        int peer = pipeline(s->g, e[i].peer);

        if (e[i].sends)
            give(s, sum, peer);
        if (e[i].receives && e[i].replaces)
            sp_message_take(s->g, s->st, sum, peer, s->tag);
        else if (e[i].receives)
            add(s, sum, peer);
    }
}

/* Each gets that of its part. */
static void scatter(const struct sharing *s)
{
    int q = sp_graph_replica(s->g), n = sp_graph_replicas(s->g);

    sp_zero_cut(s->b);
    for (int k = 1; k < n; k++) {
        int to = (q + k) % n;

        give(s, s->b->shared[SP_SHARED_G].part[to], sp_replica_pipeline(s->g, to));
        add(s, s->b->state[SP_STATE_G], sp_replica_pipeline(s->g, (q - k + n) % n));
    }
}

/* What members that share parameters all have, and computed the gradients of for their own tokens or heads. */
static void reduce_same(const struct sharing *s)
{
    struct sp_block whole = *s->b;
    struct sp_block_range range[SP_BLOCK_RANGES];
    size_t elements = 0;
    struct sp_tensor *packed;
    int n;

    if (whole.shared) {
        whole.first = sp_block_first(s->g->cfg.plan, &s->g->shape.held, whole.kind, s->st->index);
        whole.n = sp_tensor_size(whole.g) / sizeof(float);
    }
    n = sp_block_same(s->g, &whole, SP_RANGES_SUMMED, range);
    if (n == 0)
        return;
    for (int i = 0; i < n; i++)
        elements += range[i].n;
    packed = sp_pool_get(s->st->local, elements, sizeof(float), "packed gradient");
    sp_pack_insert(&s->ctx, n, range, s->b->g, packed);
    reduce(s, packed, sp_tensor_member(s->g), s->g->shape.tensor, sp_tensor_pipeline);
    sp_unpack_insert(&s->ctx, n, range, packed, s->b->g);
    sp_pool_put(packed);
}

void sp_gradients_share(struct sp_graph *g, struct sp_stage *st, struct sp_block *b)
{
    int64_t number = sp_block_number(g, st, b);
    struct sharing s = {.g = g, .st = st, .b = b, .ctx = sp_stage_context(g, st, 'T')};

    s.ctx.layer = b->layer;
    s.tag = sp_tag(g, SP_MSG_SAME, number);
    reduce_same(&s);
    s.tag = sp_tag(g, SP_MSG_GRADIENT, number);
    if (b->shared)
        scatter(&s);
    else
        reduce(&s, b->g, sp_graph_replica(g), sp_graph_replicas(g), sp_replica_pipeline);
}

void sp_gradients_end(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        for (int i = 0; i < st->n_blocks && g->place.pipelines > 1; i++)
            if (!st->blocks[i].closed)
                sp_gradients_share(g, st, &st->blocks[i]);
        drop_replica_gradients(st);
    }
}
