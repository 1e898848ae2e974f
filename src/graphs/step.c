#include "graphs/step.h"
#include "codelets/projections.h"
#include "graphs/families/family.h"
#include "graphs/message.h"
#include "graphs/offload/offload.h"
#include "policies/lowering/action.h"
#include "graphs/report/report.h"
#include "graphs/tokens.h"
#include "graphs/weights/zero.h"
#include "sp_error.h"
#include "graphs/members.h"
#include "policies/families/ownership.h"
#include "policies/lowering/pipelines.h"
#include <math.h>
#include <string.h>

/* Sums the gradients of blocks that more than one stage holds, before the norm and the update. */

/* Takes a buffer for another replica's gradient. The buffer goes back two exchanges later: at most
 * three exist, and an exchange need not wait for the sum of the one before it. */
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

/* This process's sum of the gradients of a block. */
static struct sp_tensor *sum_of(const struct sp_block *b)
{
    return b->g ? b->g : b->state[SP_STATE_G];
}

/* Does the REDUCE of one of two replicas in a pipeline. Both replicas add the two gradients in the
 * same order. */
static void reduce_replicas(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_block *b = sp_stage_block(st, (enum sp_block_kind)a->tensor.block, a->tensor.at);
    int mine = a->member[0] == st->index ? 0 : 1, peer = a->member[!mine];
    struct sp_stage *other = sp_graph_stage(g, peer);
    struct sp_task_context ctx = sp_stage_context(g, st, 'T');
    struct sp_tensor *sum = sum_of(b), *replica;

    ctx.layer = b->layer;
    sp_zero_add(st, &ctx);
    if (other) { /* a + b = b + a: one sum serves both */
        sp_zero_add(other, &ctx);
        if (b->counted)
            sp_sum_insert(&ctx, SP_F32, sum, sum_of(sp_stage_block(other, b->kind, b->layer)),
                          true);
        return;
    }
    replica = take_replica_gradient(st, sp_tensor_size(sum) / sizeof(float));
    sp_message_post(g, st, a, mine, sum, peer);
    sp_message_expect(g, &ctx, a, !mine, replica, peer);
    sp_sum_insert(&ctx, SP_F32, sum, replica, false);
}

/* ---- between pipelines ----------------------------------------------------------------------- */

/* One exchange of a block's gradient, or of its packed ranges, between pipelines. */
struct sharing {
    struct sp_graph *g;
    struct sp_stage *st;
    struct sp_block *b;
    int64_t tag;
    struct sp_task_context ctx;
};

static void send_gradient(const struct sharing *s, struct sp_tensor *handle, int pipeline)
{
    struct sp_tensor_id t = {.kind = SP_TENSOR_GRADIENT,
                             .block = (unsigned char)s->b->kind,
                             .mb = -1,
                             .at = s->b->layer};

    sp_message_share(s->g, s->st, &t, handle, pipeline, s->tag);
}

/* Receives another pipeline's gradient and adds it to this process's sum. */
static void add_gradient(const struct sharing *s, struct sp_tensor *sum, int pipeline)
{
    struct sp_tensor *replica = take_replica_gradient(s->st, sp_tensor_size(sum) / sizeof(float));

    sp_message_take(s->g, s->st, replica, pipeline, s->tag);
    sp_sum_insert(&s->ctx, SP_F32, sum, replica, false);
}

/* Sums over n pipelines, of which this one is number q; all get the sum. pipeline(g, k) is the
 * pipeline with number k. */
static void reduce_pipelines(const struct sharing *s, struct sp_tensor *sum, int q, int n,
                             int (*pipeline)(const struct sp_graph *g, int k))
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int rounds = sp_pipelines_exchanges(q, n, e);

    for (int i = 0; i < rounds; i++) {
        int peer = pipeline(s->g, e[i].peer);

        if (e[i].sends)
            send_gradient(s, sum, peer);
        if (e[i].receives && e[i].replaces)
            sp_message_take(s->g, s->st, sum, peer, s->tag);
        else if (e[i].receives)
            add_gradient(s, sum, peer);
    }
}

/* Sends each pipeline the gradient of the part that it updates, and sums those of its own part. */
static void scatter(const struct sharing *s)
{
    int q = sp_graph_replica(s->g), n = sp_graph_replicas(s->g);

    sp_zero_cut(s->b);
    for (int k = 1; k < n; k++) {
        int to = (q + k) % n;

        send_gradient(s, s->b->shared[SP_SHARED_G].part[to], sp_replica_pipeline(s->g, to));
        add_gradient(s, s->b->state[SP_STATE_G], sp_replica_pipeline(s->g, (q - k + n) % n));
    }
}

/* The pipeline of the k-th member with this one's keys and values. */
static int key_pipeline(const struct sp_graph *g, int k)
{
    return g->place.pipeline - sp_tensor_member(g) % sp_graph_key_copies(g) + k;
}

/* Sums over the tensor-parallel members, or over those with the same keys and values, the gradients
 * of elements that they all hold; each member computed these gradients for its own tokens or heads
 * only. */
static void reduce_same(const struct sharing *s, enum sp_range_kind what)
{
    bool keys = what == SP_RANGES_KEYS;
    int members = keys ? sp_graph_key_copies(s->g) : s->g->shape.tensor;
    struct sp_block whole = *s->b;
    struct sp_block_range range[SP_BLOCK_RANGES];
    struct sp_tensor *sum = sum_of(s->b), *packed;
    int n;

    if (whole.shared && whole.g) {
        whole.first = sp_block_first(s->g->cfg.plan, &s->g->shape.held, whole.kind, s->st->index);
        whole.n = sp_tensor_size(whole.g) / sizeof(float);
    }
    n = sp_block_same(s->g, &whole, what, range);
    if (n == 0)
        return;
    packed = sp_pool_get(s->st->local, sp_ranges_sum(range, n), sizeof(float), "packed gradient");
    sp_pack_insert(&s->ctx, n, range, sum, packed);
    reduce_pipelines(s, packed, sp_tensor_member(s->g) % members, members,
                     keys ? key_pipeline : sp_tensor_pipeline);
    sp_unpack_insert(&s->ctx, n, range, packed, sum);
    sp_pool_put(packed);
}

/* Sums a block's gradient, complete in this pipeline, with those of the other pipelines, into the
 * block's state. All pipelines call it for the same blocks in the same order. */
static void share_gradient(struct sp_graph *g, struct sp_stage *st, struct sp_block *b)
{
    int64_t number = sp_block_number(g, st, b);
    struct sharing s = {.g = g, .st = st, .b = b, .ctx = sp_stage_context(g, st, 'T')};

    s.ctx.layer = b->layer;
    sp_zero_add(st, &s.ctx);
    s.tag = sp_tag(g, SP_MSG_SAME, number);
    reduce_same(&s, SP_RANGES_SUMMED);
    s.tag = sp_tag(g, SP_MSG_KEYS, number);
    reduce_same(&s, SP_RANGES_KEYS);
    s.tag = sp_tag(g, SP_MSG_GRADIENT, number);
    if (b->shared && b->g)
        scatter(&s);
    else if (!b->shared)
        reduce_pipelines(&s, b->g, sp_graph_replica(g), sp_graph_replicas(g), sp_replica_pipeline);
}

/* Does this for all blocks of this process for which it was not done ahead, and gives back
 * buffers. */
static void share_remaining_gradients(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        for (int i = 0; i < st->n_blocks && g->place.pipelines > 1; i++)
            if (!st->blocks[i].closed)
                share_gradient(g, st, &st->blocks[i]);
        drop_replica_gradients(st);
    }
}

static void clear_meters(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_meter *meter = sp_stage_meter(g, st);
        struct sp_tensor *sums = sp_stage_tally(g, st);
        double *tally;

        meter->peak_bytes = meter->live_bytes;
        meter->update_us = meter->fetch_us = 0;
        st->update_meter[g->turn].update_us = 0;
        st->bytes_sent[g->turn] = 0;
        st->messages_sent[g->turn] = 0;
        st->log[g->turn].n = 0;
        memset(meter->ops, 0, sizeof *meter->ops * (size_t)meter->n_ops);
        tally = sp_tensor_acquire(sums, SP_WRITE);
        if (!tally)
            continue;
        memset(tally, 0, sizeof *tally * SP_TALLIES);
        sp_tensor_release(sums);
    }
}

/* Several tensor-parallel members hold the elements in `same`; only the first of them adds these to
 * the norm. `more`: the stage's next norm task follows right after this one. */
static void count_norm(struct sp_graph *g, const struct sp_task_context *ctx, struct sp_stage *st,
                       const struct sp_block *b, bool more)
{
    struct sp_block_range same[SP_BLOCK_RANGES];
    int n = 0;

    if (sp_tensor_member(g) % sp_graph_key_copies(g) > 0) /* gains of heads come after them */
        n = sp_block_same(g, b, SP_RANGES_KEYS, same);
    if (sp_tensor_member(g) > 0)
        n += sp_block_same(g, b, SP_RANGES_SAME, same + n);
    sp_sumsq_insert(ctx, b->state[SP_STATE_G], n, same, sp_stage_tally(g, st), more);
}

static bool counts(const struct sp_block *b)
{
    return b->counted && !b->closed;
}

static void norm_tasks(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_stage_context(g, st, 'N');
        int left = 0;

        for (int i = 0; i < st->n_blocks; i++)
            left += counts(&st->blocks[i]);
        sp_states_come(st, 0);
        for (int i = 0; i < st->n_blocks; i++) {
            ctx.layer = st->blocks[i].layer;
            if (counts(&st->blocks[i]))
                count_norm(g, &ctx, st, &st->blocks[i], --left > 0);
        }
    }
}

/* The number of buffers that an update writes. */
static int state_of(const struct sp_block *b)
{
    return b->state[SP_STATE_W] == b->state[SP_STATE_MASTER] ? SP_STATE_W : SP_BLOCK_STATE;
}

unsigned sp_block_restarts(const struct sp_graph *g, const struct sp_block *b)
{
    return g->family->overwrites && !b->shared ? sp_matrices(b->kind) : 0;
}

static void swap_spare(struct sp_block *b)
{
    int n = state_of(b);

    for (int i = 0; i < n; i++) {
        struct sp_tensor *spare = b->spare[i];

        b->spare[i] = b->state[i];
        b->state[i] = spare;
    }
    if (n == SP_STATE_W)
        b->state[SP_STATE_W] = b->state[SP_STATE_MASTER];
    b->w = b->state[SP_STATE_W];
    b->g = b->state[SP_STATE_G];
}

/* Keeps a copy of a block's state, so that the update can be undone. The update continues with the
 * copy, so that an undo only swaps back; but if the state is part of a gathered block, the copy is
 * kept and the state goes on. */
static void step_aside(const struct sp_task_context *ctx, struct sp_block *b)
{
    static const char *const names[] = {"w", "g", "m", "v", "rounded w"};
    int n = state_of(b);

    for (int i = 0; i < n; i++)
        if (!b->spare[i])
            b->spare[i] = sp_tensor_make(b->state[i]->sink, b->n,
                                         sp_tensor_size(b->state[i]) / b->n, names[i]);
    sp_state_copy_insert(ctx, n, b->state, b->spare);
    if (!b->shared)
        swap_spare(b);
}

static void step_back(const struct sp_task_context *ctx, struct sp_block *b)
{
    if (!b->shared) {
        swap_spare(b);
        return;
    }
    sp_zero_cut(b);
    sp_state_copy_insert(ctx, state_of(b), b->spare, b->state);
}

/* On cores that have the state: reads the gradient there, and clears it on the GPU, whose next task
 * then begins to fetch the new weights. */
static void update_on_cores(struct sp_graph *g, struct sp_stage *st, int i,
                            const struct sp_update *hp)
{
    struct sp_task_context cores = sp_update_context(g, st, 'U'),
                           gpu = sp_stage_context(g, st, 'U');
    struct sp_block *b = &st->blocks[i];
    struct sp_update kept = *hp;

    cores.layer = gpu.layer = b->layer;
    kept.keeps_gradient = true;
    sp_zero_cut(b);
    sp_update_insert(&cores, &g->held, b->kind, b->layer, b->first, &kept,
                     b->state[SP_STATE_MASTER], b->state[SP_STATE_G], b->state[SP_STATE_M],
                     b->state[SP_STATE_V], g->shape.dtype, b->state[SP_STATE_W]);
    sp_states_leave(g, st, i);
    sp_clear_insert(&gpu, b->state[SP_STATE_G]);
}

static void update(struct sp_graph *g, const struct sp_task_context *ctx, struct sp_block *b,
                   const struct sp_update *hp, bool beside)
{
    struct sp_update own = *hp;

    sp_zero_cut(b);
    if (beside)
        step_aside(ctx, b);
    own.restarts = sp_block_restarts(g, b);
    sp_update_insert(ctx, &g->held, b->kind, b->layer, b->first, &own, b->state[SP_STATE_MASTER],
                     b->state[SP_STATE_G], b->state[SP_STATE_M], b->state[SP_STATE_V],
                     g->shape.dtype, b->state[SP_STATE_W]);
}

void sp_step_close(struct sp_graph *g, struct sp_stage *st, struct sp_block *b)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'U');

    if (!g->ahead)
        return;
    ctx.layer = b->layer;
    share_gradient(g, st, b);
    if (b->counted)
        count_norm(g, &ctx, st, b, false);
    update(g, &ctx, b, g->ahead, g->beside);
    b->closed = true;
}

void sp_step_apply(struct sp_graph *g, struct sp_stage *st, struct sp_block *b,
                   const struct sp_update *hp, struct sp_tensor *into)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'U');
    struct sp_tensor *w = b->state[SP_STATE_W];

    ctx.layer = b->layer;
    if (b->counted)
        count_norm(g, &ctx, st, b, false);
    if (into != w) {
        sp_copy_insert(&ctx, w, into);
        if (b->state[SP_STATE_MASTER] == w)
            b->state[SP_STATE_MASTER] = into;
        b->w = b->state[SP_STATE_W] = into;
    }
    update(g, &ctx, b, hp, false);
    b->closed = true;
}

/* The place in the order of the first op that is no forward; from there on a step cannot be
 * undone. */
static int first_backward(const struct sp_graph *g)
{
    int i = 0;

    while (i < g->lowering.n) {
        const struct sp_op *op = sp_lowering_op(&g->lowering, i);

        if (op->pass != SP_F || op->overlap)
            break;
        i++;
    }
    return i;
}

void sp_step_act(struct sp_graph *g, const struct sp_action *a)
{
    struct sp_stage *st = sp_graph_stage(g, a->stage);

    if (a->kind == SP_ACTION_GATHER || a->kind == SP_ACTION_SCATTER) {
        g->family->collective(g, a);
        return;
    }
    if (!st)
        return;
    switch (a->kind) {
    case SP_ACTION_RUN:
        sp_parked_run(g, st);
        g->family->run(g, st, a);
        break;
    case SP_ACTION_SEND:
        sp_message_send(g, st, a);
        break;
    case SP_ACTION_RECV:
        sp_message_receive(g, st, a);
        if (g->family->received)
            g->family->received(g, st, &a->tensor);
        break;
    case SP_ACTION_FREE:
        sp_parked_departs(g, st, a);
        sp_store_drop(&st->store, &a->tensor);
        break;
    case SP_ACTION_REDUCE:
        reduce_replicas(g, st, a);
        break;
    case SP_ACTION_EXCHANGE:
        break; /* tasks of the op do it */
    case SP_ACTION_EVICT:
        sp_offload_evict(g, st, a);
        break;
    case SP_ACTION_FETCH:
        sp_offload_fetch(st, a);
        break;
    default:
        sp_error_end("internal: starpipe: %s is no action of this family", sp_action_name(a->kind));
    }
}

static void act(void *arg, const struct sp_action *a)
{
    sp_step_act(arg, a);
}

static void submit_ops(struct sp_graph *g, int end)
{
    while (g->submitted < end)
        g->submitted += sp_lower_ops(&g->lowering, g->submitted);
}

void sp_step_prepare(struct sp_graph *g, const struct sp_data *data, uint64_t k)
{
    if (g->finished_us <= 0)
        g->finished_us = g->cfg.sink->ops->now_us();
    g->cfg.sink->ops->step((unsigned long)k + 1);
    g->step++;
    g->data_step = k;
    g->turn = !g->turn;
    g->submitted = 0;
    sp_tokens_fill(g, data, k);
    clear_meters(g);
    sp_zero_begin(g);
    if (g->family->begin)
        g->family->begin(g);
}

void sp_step_begin(struct sp_graph *g, const struct sp_data *data, uint64_t k)
{
    sp_step_prepare(g, data, k);
    if (sp_lower_begin(&g->lowering, act, g))
        sp_error_end("no memory for the actions of a step");
    submit_ops(g, first_backward(g));
}

void sp_step_conclude(struct sp_graph *g)
{
    if (g->family->end)
        g->family->end(g);
    g->ahead = NULL;
    for (int k = 0; k < g->place.n_local; k++)
        sp_parked_end(&g->stages[k]);
    share_remaining_gradients(g);
    norm_tasks(g);
    g->closing = g->turn;
}

void sp_step_rest(struct sp_graph *g, const struct sp_update *ahead, bool beside)
{
    g->ahead = ahead;
    g->beside = beside;
    submit_ops(g, g->lowering.n);
    sp_lower_end(&g->lowering);
    sp_step_conclude(g);
}

/* Receives a message that was sent to this process although the op that needs it was not
 * submitted. */
static void receive_orphan(void *arg, const struct sp_action *a)
{
    struct sp_graph *g = arg;

    if (a->kind == SP_ACTION_RECV && sp_graph_stage(g, a->stage) && !sp_graph_stage(g, a->peer))
        sp_message_receive(g, sp_graph_stage(g, a->stage), a);
}

static void undo_messages(struct sp_graph *g)
{
    sp_lower_orphans(&g->lowering, receive_orphan, g);
    g->cfg.sink->ops->wait();
    for (int k = 0; k < g->place.n_local; k++)
        sp_store_clear(&g->stages[k].store);
}

void sp_step_undo(struct sp_graph *g)
{
    undo_messages(g);
    g->family->discard(g);
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_stage_context(g, st, 'U');

        for (int i = 0; i < st->n_blocks; i++) {
            ctx.layer = st->blocks[i].layer;
            if (st->blocks[i].spare[0])
                step_back(&ctx, &st->blocks[i]);
        }
    }
    g->turn = g->closing;
}

void sp_step_update_submit(struct sp_graph *g, const struct sp_update *hp, bool beside)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_stage_context(g, st, 'U');

        for (int i = 0; i < st->n_blocks; i++) {
            struct sp_block *b = &st->blocks[i];

            ctx.layer = b->layer;
            sp_states_wait(g, &ctx, st, i);
            sp_states_come(st, i + 1);
            if (g->cfg.plan->updates_on_cores) {
                update_on_cores(g, st, i, hp);
                continue;
            }
            if (!b->closed)
                update(g, &ctx, b, hp, beside);
            sp_states_leave(g, st, i);
            b->closed = false;
        }
    }
}

void sp_step_update(struct sp_graph *g, const struct sp_update *hp, struct sp_step_report *report)
{
    double start = g->cfg.sink->ops->now_us();

    sp_step_update_submit(g, hp, false);
    g->cfg.sink->ops->wait();
    report->step_us += g->cfg.sink->ops->now_us() - start;
    g->finished_us = 0;
}
