#include "graphs/gradients.h"
#include "graphs/message.h"
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
            sp_sum_insert(&ctx, SP_F32, b->g, sp_stage_block(other, b->kind, b->layer)->g, true);
        return;
    }
    theirs = take_theirs(st, b->n);
    sp_message_post(g, st, a, mine, b->g, peer);
    sp_message_expect(g, &ctx, a, !mine, theirs, peer);
    sp_sum_insert(&ctx, SP_F32, b->g, theirs, false);
}

/* ---- data parallelism ------------------------------------------------------------------------ */

void sp_gradients_share(struct sp_graph *g, struct sp_stage *st, struct sp_block *b)
{
    int64_t blocks = SP_BLOCK_KINDS * ((int64_t)g->shape.model.layers + 1);
    int64_t tag = sp_tag(g, SP_MSG_GRADIENT, st->index * blocks + (b - st->blocks));
    struct sp_task_context ctx = sp_stage_context(g, st, 'T');
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int n = sp_pipelines_exchanges(g->place.pipeline, g->place.pipelines, e);
    struct sp_tensor_id t = {
        .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)b->kind, .mb = -1, .at = b->layer};

    ctx.layer = b->layer;
    for (int i = 0; i < n; i++) {
        int peer = sp_stage_rank_in(&g->place, st->index, e[i].peer);
        starpu_data_handle_t to = b->g;

        if (e[i].sends)
            sp_message_share(g, st, &t, b->g, peer, tag);
        if (!e[i].receives)
            continue;
        if (!e[i].replaces)
            to = take_theirs(st, b->n);
        sp_transport_recv(to, peer, tag, NULL, NULL, NULL);
        if (!e[i].replaces)
            sp_sum_insert(&ctx, SP_F32, b->g, to, false);
    }
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
