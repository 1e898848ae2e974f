#include "graphs/gradients.h"
#include "graphs/message.h"
#include "graphs/weights/zero.h"
#include "policies/lowering/pipelines.h"

/* A buffer for another one's gradient. It goes back two exchanges later, so that no more than three are
 * there, but an exchange need not wait for the sum of the one before it. */
static starpu_data_handle_t take_theirs(struct sp_stage *st, size_t n)
{
    if (st->theirs[1])
        sp_pool_put(st->theirs[1]);
    st->theirs[1] = st->theirs[0];
    st->theirs[0] = sp_pool_get(st->local, n, sizeof(float), "replica gradient");
    return st->theirs[0];
}

static void drop_theirs(struct sp_stage *st)
{
    for (int i = 0; i < 2; i++) {
        if (st->theirs[i])
            sp_pool_put(st->theirs[i]);
        st->theirs[i] = NULL;
    }
}

void sp_gradients_reduce(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_block *b = sp_stage_block(st, (enum sp_block_kind)a->tensor.block, a->tensor.at);
    int mine = a->member[0] == st->index ? 0 : 1, peer = a->member[!mine];
    struct sp_stage *other = sp_graph_stage(g, peer);
    struct sp_task_context ctx = sp_stage_context(g, st, 'T');
    starpu_data_handle_t theirs;

    ctx.layer = b->layer;
    if (other) { /* a + b = b + a: one sum serves both */
        if (b->counted)
            sp_sum_insert(&ctx, SP_F32, b->g, sp_stage_gradient(other, b->kind, b->layer), true);
        return;
    }
    theirs = take_theirs(st, starpu_data_get_size(b->g) / sizeof(float));
    sp_message_post(g, st, a, mine, b->g, peer);
    sp_message_expect(g, &ctx, a, !mine, theirs, peer);
    sp_sum_insert(&ctx, SP_F32, b->g, theirs, false);
}

/* ---- data parallelism ------------------------------------------------------------------------ */

/* A block's gradient between pipelines. */
struct sharing {
    struct sp_graph *g;
    struct sp_stage *st;
    struct sp_block *b;
    int64_t tag;
    struct sp_task_context ctx;
};

static void give(const struct sharing *s, starpu_data_handle_t handle, int pipeline)
{
    struct sp_tensor_id t = {.kind = SP_TENSOR_GRADIENT,
                             .block = (unsigned char)s->b->kind,
                             .mb = -1,
                             .at = s->b->layer};

    sp_message_share(s->g, s->st, &t, handle, pipeline, s->tag);
}

/* Theirs, added to this process's state. */
static void add(const struct sharing *s, int pipeline)
{
    starpu_data_handle_t theirs = take_theirs(s->st, s->b->n);

    sp_message_take(s->g, s->st, theirs, pipeline, s->tag);
    sp_sum_insert(&s->ctx, SP_F32, s->b->state[SP_STATE_G], theirs, false);
}

/* All pipelines get the sum. */
static void reduce(const struct sharing *s)
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int n = sp_pipelines_exchanges(s->g->place.pipeline, s->g->place.pipelines, e);

    for (int i = 0; i < n; i++) {
        if (e[i].sends)
            give(s, s->b->g, e[i].peer);
        if (e[i].receives && e[i].replaces)
            sp_message_take(s->g, s->st, s->b->g, e[i].peer, s->tag);
        else if (e[i].receives)
            add(s, e[i].peer);
    }
}

/* Each gets that of its part. */
static void scatter(const struct sharing *s)
{
    int q = s->g->place.pipeline, D = s->g->place.pipelines;

    sp_zero_cut(s->b);
    for (int k = 1; k < D; k++) {
        int to = (q + k) % D;

        give(s, s->b->shared[SP_SHARED_G].part[to], to);
        add(s, (q - k + D) % D);
    }
}

void sp_gradients_share(struct sp_graph *g, struct sp_stage *st, struct sp_block *b)
{
    struct sharing s = {.g = g,
                        .st = st,
                        .b = b,
                        .tag = sp_tag(g, SP_MSG_GRADIENT, sp_block_number(g, st, b)),
                        .ctx = sp_stage_context(g, st, 'T')};

    s.ctx.layer = b->layer;
    if (b->shared)
        scatter(&s);
    else
        reduce(&s);
}

void sp_gradients_end(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        for (int i = 0; i < st->n_blocks && g->place.pipelines > 1; i++)
            if (!st->blocks[i].closed)
                sp_gradients_share(g, st, &st->blocks[i]);
        drop_theirs(st);
    }
}
