#include "graphs/message.h"
#include "graphs/families/family.h"
#include "graphs/offload/offload.h"
#include "sp_error.h"
#include <stdlib.h>

/* Tags repeat after this many messages; fewer than that are ever on their way. */
enum { MESSAGES = 1 << 17 };

/* The number of message k of an action; all processes agree on it. */
static int number_of(const struct sp_action *a, int k)
{
    SP_NEED(a->number >= 0, "a tensor is received that nobody sent");
    return a->number + k;
}

/* ---- records ---------------------------------------------------------------------------- */

static bool is_apart(const struct sp_graph *g, int a, int b)
{
    return sp_stage_rank(&g->place, a) != sp_stage_rank(&g->place, b);
}

/* Counts the messages that an action sends and receives at most, on each stage. */
static void count_records(void *arg, const struct sp_action *a)
{
    struct sp_graph *g = arg;
    int pieces = sp_tensor_pieces(g->cfg.plan, &g->shape, &a->tensor);

    if (a->kind == SP_ACTION_SEND || a->kind == SP_ACTION_RECV) {
        g->records[a->stage] += is_apart(g, a->stage, a->peer) ? pieces : 0;
    } else if (a->kind == SP_ACTION_REDUCE) {
        g->records[a->stage] += is_apart(g, a->member[0], a->member[1]) ? 2 : 0;
    } else if (a->kind == SP_ACTION_GATHER || a->kind == SP_ACTION_SCATTER) {
        for (int k = 0; k < a->members; k++)
            if (is_apart(g, a->stage, a->member[k])) {
                g->records[a->member[k]] += pieces;
                g->records[a->stage] += pieces;
            }
    }
}

int sp_message_logs_create(struct sp_graph *g)
{
    int err = 0;

    sp_message_logs_destroy(g);
    g->records = calloc((size_t)g->place.stages, sizeof *g->records);
    if (!g->records)
        return -ENOMEM;
    if (g->place.world.size > 1)
        err = sp_lower_step(&g->lowering, count_records, g);
    for (int k = 0; !err && k < g->place.n_local; k++)
        for (int turn = 0; turn < 2; turn++) {
            struct sp_message_log *log = &g->stages[k].log[turn];

            log->cap = g->records[g->stages[k].index];
            log->record = calloc((size_t)log->cap + 1, sizeof *log->record);
            err = log->record ? err : -ENOMEM;
        }
    return err;
}

void sp_message_logs_destroy(struct sp_graph *g)
{
    for (int k = 0; g->stages && k < g->place.n_local; k++)
        for (int turn = 0; turn < 2; turn++) {
            free(g->stages[k].log[turn].record);
            g->stages[k].log[turn] = (struct sp_message_log){0};
        }
    free(g->records);
    g->records = NULL;
}

/* Adds a record to the step being submitted. NULL if there is no more room, which happens with
 * messages of a step that is undone. */
static struct sp_message_record *record(struct sp_graph *g, struct sp_stage *st, bool sends,
                                        int number)
{
    struct sp_message_log *log = &st->log[g->turn];
    struct sp_message_record *r;

    if (log->n == log->cap) /* also in a graph that is never run */
        return NULL;
    r = &log->record[log->n++];
    *r = (struct sp_message_record){
        .number = number, .sends = sends, .now_us = g->cfg.sink->ops->now_us};
    return r;
}

/* ---- one message ------------------------------------------------------------------------- */

/* The destination of a message. */
struct destination {
    int rank;
    int64_t tag;
    struct sp_transfer *times; /* NULL: not recorded */
};

static void post(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *t,
                 struct sp_tensor *handle, const struct destination *to)
{
    char name[SP_TENSOR_TEXT] = "";

    if (g->cfg.sink->ops->names_messages())
        sp_tensor_print(g->cfg.plan, t, name);
    st->bytes_sent[g->turn] += sp_tensor_size(handle);
    st->messages_sent[g->turn]++;
    g->cfg.sink->ops->send(handle, to->rank, to->tag, name, to->times);
}

void sp_message_post(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a, int k,
                     struct sp_tensor *handle, int to)
{
    int number = number_of(a, k);
    struct sp_message_record *r = record(g, st, true, number);

    post(g, st, &a->tensor, handle,
         &(struct destination){.rank = sp_stage_rank(&g->place, to),
                               .tag = sp_tag(g, SP_MSG_ACTION, number % MESSAGES),
                               .times = r ? &r->times : NULL});
}

void sp_message_share(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *t,
                      struct sp_tensor *handle, int pipeline, int64_t tag)
{
    post(g, st, t, handle,
         &(struct destination){.rank = sp_stage_rank_in(&g->place, st->index, pipeline),
                               .tag = tag});
}

void sp_message_take(const struct sp_graph *g, const struct sp_stage *st, struct sp_tensor *handle,
                     int pipeline, int64_t tag)
{
    g->cfg.sink->ops->receive(handle, sp_stage_rank_in(&g->place, st->index, pipeline), tag, NULL,
                              NULL, NULL);
}

static void arrived(void *arg)
{
    struct sp_message_record *r = arg;
    double now = r->now_us();

    if (r->times.ended_us <= 0) /* the transport does not tell */
        r->times.ended_us = now;
    if (r->arrived_us)
        __atomic_store(r->arrived_us, &now, __ATOMIC_RELAXED);
}

void sp_message_expect(struct sp_graph *g, const struct sp_task_context *ctx,
                       const struct sp_action *a, int k, struct sp_tensor *handle, int from)
{
    int number = number_of(a, k);
    struct sp_meter *meter = ctx->meter;
    struct sp_message_record *r = record(g, sp_graph_stage(g, ctx->stage), false, number);

    if (r && meter && ctx->op_index >= 0 && ctx->op_index < meter->n_ops)
        r->arrived_us = &meter->ops[ctx->op_index].arrived_us;
    g->cfg.sink->ops->receive(handle, sp_stage_rank(&g->place, from),
                              sp_tag(g, SP_MSG_ACTION, number % MESSAGES), r ? &r->times : NULL,
                              r ? arrived : NULL, r);
}

/* ---- by actions -------------------------------------------------------------------------- */

/* A tensor that a stage has in its store or in its own blocks. */
struct found {
    int n;
    struct sp_tensor *const *piece;
    bool pooled;
    struct sp_tensor *own[];
};

/* Finds a tensor of a stage, made first if necessary. The caller frees the result. */
static struct found *find(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    struct found *f = malloc(sizeof *f + (size_t)n * sizeof *f->own);
    const struct sp_stored *t;

    if (g->family->make)
        g->family->make(g, st, id);
    t = sp_store_find(&st->store, id);
    SP_NEED(f, "no memory for a message of %d parts", n);
    *f = (struct found){.n = n, .piece = t ? t->piece : f->own, .pooled = t && t->pooled};
    for (int i = 0; !t && i < n; i++)
        f->own[i] = sp_stage_piece(g, st, id, i);
    return f;
}

void sp_message_send(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct found *f;

    if (sp_graph_stage(g, a->peer))
        return; /* the receiver finds it here */
    f = find(g, st, &a->tensor);
    for (int i = 0; i < f->n; i++)
        if (f->piece[i])
            sp_message_post(g, st, a, i, f->piece[i], a->peer);
    free(f);
}

/* The pool to receive a tensor into. A tensor that crosses in every op arrives while the previous
 * one is still read, so its pool has slack. Blocks, and tensors that stay until the backward of
 * their slice or part, arrive one at a time. */
static struct sp_pool *pool_for(const struct sp_graph *g, struct sp_stage *st,
                                const struct sp_tensor_id *t)
{
    const struct sp_family *family = g->cfg.plan->family;
    bool alone =
        t->kind == SP_TENSOR_BLOCK || t->kind == SP_TENSOR_GRADIENT || t->kind == SP_TENSOR_WOUT ||
        t->kind == SP_TENSOR_STASH || t->kind == SP_TENSOR_DWOUT ||
        (t->kind == SP_TENSOR_KV && !family->facts.parts && !family->facts.shares_attention) ||
        (t->kind == SP_TENSOR_DKV && family->facts.shares_attention);

    return alone ? st->local : st->boundary;
}

/* Receives a tensor from another process. */
static void receive(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, &a->tensor);
    const char *name = sp_tensor_name((enum sp_tensor_kind)a->tensor.kind);
    struct sp_task_context ctx = sp_stage_context(g, st, 'R');
    struct sp_tensor **piece = calloc((size_t)n, sizeof *piece);

    SP_NEED(piece, "no memory for a message of %d parts", n);
    ctx.op_index = a->index;
    for (int i = 0; i < n; i++) {
        size_t bytes, elements = sp_tensor_piece(g->cfg.plan, &g->shape, &a->tensor, i, &bytes);

        if (!elements)
            continue;
        piece[i] = a->home ? sp_stage_piece(g, st, &a->tensor, i)
                           : sp_pool_get(pool_for(g, st, &a->tensor), elements, bytes, name);
    }
    sp_parked_arrives(g, st, a, n, piece);
    for (int i = 0; i < n; i++)
        if (piece[i])
            sp_message_expect(g, &ctx, a, i, piece[i], a->peer);
    if (!a->home)
        sp_store_put(&st->store, &a->tensor, n, piece, true);
    free(piece);
}

/* Copies a tensor back into its owner's blocks without a message. The pieces may be other buffers
 * than the owner's, because the tensor may have been in other processes. */
static void copy_home(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a,
                      const struct found *f)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');

    for (int i = 0; i < f->n; i++) {
        struct sp_tensor *own = sp_stage_piece(g, st, &a->tensor, i);

        ctx.layer = sp_tensor_block(g->cfg.plan, &g->shape, &a->tensor, i).layer;
        if (f->piece[i] && f->piece[i] != own)
            sp_copy_insert(&ctx, f->piece[i], own);
    }
}

void sp_message_receive(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_stage *sender = sp_graph_stage(g, a->peer);
    struct found *f;

    if (!sender) {
        receive(g, st, a);
        return;
    }
    f = find(g, sender, &a->tensor);
    if (a->home) {
        copy_home(g, st, a, f);
    } else {
        for (int i = 0; f->pooled && i < f->n; i++)
            if (f->piece[i])
                sp_pool_hold(f->piece[i]);
        sp_store_put(&st->store, &a->tensor, f->n, f->piece, f->pooled);
    }
    free(f);
}
