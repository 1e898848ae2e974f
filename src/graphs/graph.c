#include "graphs/graph.h"
#include "transport/transport.h"
#include "policies/families/ownership.h"
#include "sinks/pool.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

int64_t sp_tag(const struct sp_graph *g, enum sp_message kind, int64_t k)
{
    /* Four steps have distinct tags, because a process may be a step ahead of another. Tags are
     * small: MPI has at most 2^31, UCX 2^23. */
    return SP_TAG_FIRST + (k * 4 + (int64_t)(g->step % 4)) * SP_MSG_KINDS + (int64_t)kind;
}

/* ---- blocks --------------------------------------------------------------------------- */

struct sp_block *sp_stage_block(struct sp_stage *st, enum sp_block_kind kind, int layer)
{
    for (int i = 0; i < st->n_blocks; i++)
        if (st->blocks[i].kind == kind && st->blocks[i].layer == layer)
            return &st->blocks[i];
    return NULL;
}

struct sp_tensor *sp_stage_weight(struct sp_stage *st, enum sp_block_kind kind, int layer)
{
    struct sp_block *b = sp_stage_block(st, kind, layer);

    return b ? b->w : NULL;
}

struct sp_tensor *sp_stage_gradient(struct sp_stage *st, enum sp_block_kind kind, int layer)
{
    struct sp_block *b = sp_stage_block(st, kind, layer);

    return b ? b->g : NULL;
}

struct sp_tensor *sp_stage_piece(const struct sp_graph *g, struct sp_stage *st,
                                 const struct sp_tensor_id *t, int i)
{
    struct sp_tensor_block at = sp_tensor_block(g->cfg.plan, &g->shape, t, i);
    const struct sp_block *b = sp_stage_block(st, at.kind, at.layer);

    if (!b)
        return NULL;
    if (at.gradient)
        return sp_shape_shards_gradients(&g->shape, at.layer) ? b->state[SP_STATE_G] : b->g;
    return sp_shape_shards_weights(&g->shape, at.layer) ? b->state[SP_STATE_W] : b->w;
}

int64_t sp_block_number(const struct sp_graph *g, const struct sp_stage *st,
                        const struct sp_block *b)
{
    return st->index * SP_BLOCK_KINDS * ((int64_t)g->shape.model.layers + 1) + (b - st->blocks);
}

int sp_block_owner(const struct sp_graph *g, enum sp_block_kind kind, int layer)
{
    int stages[SP_MAX_OWNERS];

    sp_block_owners(g->cfg.plan, &g->shape.held, kind, layer, stages);
    return stages[0];
}

int sp_block_same(const struct sp_graph *g, const struct sp_block *b, enum sp_range_kind what,
                  struct sp_block_range *range)
{
    int n = g->shape.tensor > 1 ? sp_block_ranges(&g->shape.whole, g->shape.tensor, b->kind, what,
                                                  g->shape.sequence, range)
                                : 0;

    return sp_ranges_clip(range, n, b->first, b->n);
}

struct sp_task_context sp_stage_context(struct sp_graph *g, struct sp_stage *st, char pass)
{
    /* A forward that may overtake backwards must not wait for them, so it takes the oldest free
     * buffers; backwards take the latest, which they have just given back themselves. */
    if (g->cfg.ready)
        sp_pool_take_oldest(st->local, pass == 'F');
    return (struct sp_task_context){
        .sink = g->cfg.sink,
        .worker = st->worker,
        .order = &g->worker_order[st->worker],
        .priority = g->lowering.n - g->submitted,
        .returning = &st->returning,
        .meter = sp_stage_meter(g, st),
        .window = g->window,
        .op_index = -1,
        .stage = st->index,
        .in_stream = g->in_stream,
        .pass = pass,
        .slice = -1,
        .layer = -1,
    };
}

struct sp_task_context sp_update_context(struct sp_graph *g, struct sp_stage *st, char pass)
{
    struct sp_task_context ctx = sp_stage_context(g, st, pass);

    if (!g->cfg.plan->updates_on_cores)
        return ctx;
    ctx.worker = sp_update_worker(&g->place);
    ctx.order = &g->worker_order[ctx.worker];
    ctx.meter = &st->update_meter[g->turn]; /* the GPU's worker writes the other one */
    ctx.returning = &st->gradients;
    return ctx;
}

size_t sp_stage_buffer_bytes(const struct sp_stage *st)
{
    return sp_pool_bytes(st->local) + sp_pool_bytes(st->boundary) + st->gathered_bytes;
}

void sp_stage_forget(struct sp_graph *g, struct sp_stage *st)
{
    sp_stage_meter(g, st)->live_bytes = 0;
    g->cfg.sink->ops->discard(st->worker);
}

/* ---- stored tensors ------------------------------------------------------------------------- */

void sp_store_put(struct sp_store *s, const struct sp_tensor_id *id, int n,
                  struct sp_tensor *const *piece, bool pooled)
{
    struct sp_stored **at = &s->list[sp_tensor_hash(id, SP_STORE_LISTS)];
    struct sp_stored *stored = malloc(sizeof *stored + (size_t)n * sizeof *piece);

    SP_NEED(stored, "no memory for a tensor of %d parts", n);
    while (*at)
        at = &(*at)->next;
    *stored = (struct sp_stored){.id = *id, .n = n, .pooled = pooled};
    stored->piece = (struct sp_tensor **)(stored + 1);
    memcpy(stored->piece, piece, (size_t)n * sizeof *piece);
    *at = stored;
}

static const struct sp_stored *first_of(const struct sp_stored *at, const struct sp_tensor_id *id)
{
    while (at && !sp_tensor_is_same(&at->id, id))
        at = at->next;
    return at;
}

const struct sp_stored *sp_store_find(const struct sp_store *s, const struct sp_tensor_id *id)
{
    return first_of(s->list[sp_tensor_hash(id, SP_STORE_LISTS)], id);
}

const struct sp_stored *sp_store_next(const struct sp_stored *t)
{
    return first_of(t->next, &t->id);
}

/* Removes a tensor from its list, and gives pooled pieces back. */
static void drop(struct sp_stored **at)
{
    struct sp_stored *stored = *at;

    *at = stored->next;
    for (int i = 0; stored->pooled && i < stored->n; i++)
        if (stored->piece[i])
            sp_pool_put(stored->piece[i]);
    free(stored);
}

void sp_store_drop(struct sp_store *s, const struct sp_tensor_id *id)
{
    struct sp_stored **latest = NULL;

    for (struct sp_stored **at = &s->list[sp_tensor_hash(id, SP_STORE_LISTS)]; *at;
         at = &(*at)->next)
        if (sp_tensor_is_same(&(*at)->id, id))
            latest = at;
    if (latest)
        drop(latest);
}

void sp_store_clear(struct sp_store *s)
{
    for (int i = 0; i < SP_STORE_LISTS; i++)
        while (s->list[i])
            drop(&s->list[i]);
}
