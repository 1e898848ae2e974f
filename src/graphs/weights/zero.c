#include "graphs/weights/zero.h"
#include "graphs/message.h"
#include "policies/lowering/pipelines.h"
#include "sp_error.h"
#include <stdlib.h>

/* Creates one of the two buffers of a block, whole, or only the shard of this pipeline. */
static int create_shared(struct sp_graph *g, struct sp_block *b, int which, size_t n, bool shards)
{
    bool weights = which == SP_SHARED_W;
    size_t elem = weights ? sp_shape_elem(&g->shape) : sizeof(float);
    enum sp_state state = weights ? SP_STATE_W : SP_STATE_G;
    int q = sp_graph_replica(g), err;

    if (shards) {
        b->state[state] = sp_tensor_make(g->cfg.sink, b->n, elem, "shard");
        return 0;
    }
    err = sp_gathered_create(g->cfg.sink, &b->shared[which], n, sp_graph_replicas(g), elem);
    if (!err)
        b->state[state] = b->shared[which].part[q];
    return err;
}

int sp_zero_create(struct sp_graph *g, struct sp_block *b)
{
    int parts = sp_graph_replicas(g), err;
    size_t n = b->n;
    uint64_t first, held;

    if (n > UINT32_MAX || n < (size_t)parts)
        return sp_error(EINVAL, "--zero: %d pipelines cannot share a block of %zu parameters out",
                        parts, n);
    b->shared = calloc(2, sizeof *b->shared);
    if (!b->shared)
        return -ENOMEM;
    sp_pipelines_part(n, sp_graph_replica(g), parts, &first, &held);
    b->first += first;
    b->n = held;
    err = create_shared(g, b, SP_SHARED_W, n, sp_shape_shards_weights(&g->shape, b->layer));
    err = err ? err
              : create_shared(g, b, SP_SHARED_G, n, sp_shape_shards_gradients(&g->shape, b->layer));
    b->w = b->shared[SP_SHARED_W].whole;
    b->g = b->shared[SP_SHARED_G].whole;
    if (!err)
        sp_zero_cut(b);
    return err;
}

void sp_zero_destroy(struct sp_block *b)
{
    sp_gathered_destroy(&b->shared[SP_SHARED_W]);
    sp_gathered_destroy(&b->shared[SP_SHARED_G]);
    free(b->shared);
}

void sp_zero_cut(struct sp_block *b)
{
    if (!b->shared)
        return;
    sp_gathered_cut(&b->shared[SP_SHARED_W]);
    sp_gathered_cut(&b->shared[SP_SHARED_G]);
}

void sp_zero_share_weights(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *t,
                           struct sp_tensor *own, const struct sp_gathered *to, int64_t tag)
{
    int q = sp_graph_replica(g), D = sp_graph_replicas(g);

    for (int k = 1; k < D; k++) {
        int other = (q + k) % D, from = (q - k + D) % D;

        sp_message_share(g, st, t, own, sp_replica_pipeline(g, other), tag);
        sp_message_take(g, st, to->part[from], sp_replica_pipeline(g, from), tag);
    }
}

void sp_zero_begin(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_stage_context(g, st, 'T');

        for (int i = 0; i < st->n_blocks; i++) {
            struct sp_block *b = &st->blocks[i];
            struct sp_tensor_id t = {
                .kind = SP_TENSOR_BLOCK, .block = (unsigned char)b->kind, .mb = -1, .at = b->layer};

            if (!b->shared)
                continue;
            sp_zero_cut(b);
            if (b->shared[SP_SHARED_W].whole)
                sp_zero_share_weights(g, st, &t, b->state[SP_STATE_W], &b->shared[SP_SHARED_W],
                                      sp_tag(g, SP_MSG_WEIGHTS, sp_block_number(g, st, b)));
            sp_gathered_join(&b->shared[SP_SHARED_W]);
            sp_gathered_join(&b->shared[SP_SHARED_G]);
            ctx.layer = b->layer;
            if (b->g)
                sp_clear_insert(&ctx, b->g);
        }
    }
}

/* ---- gathered blocks ------------------------------------------------------------------------ */

size_t sp_gathered_bytes(const struct sp_gathered *w)
{
    return w->whole ? sp_tensor_size(w->whole) : 0;
}

/* Allocates the tensors of the parts; the sink fills them in. */
static struct sp_tensor **make_parts(struct sp_tensor *whole, int parts)
{
    struct sp_tensor **part = calloc((size_t)parts, sizeof *part);
    struct sp_tensor *all = calloc((size_t)parts, sizeof *all);
    size_t n = (size_t)parts;

    SP_NEED(part && all, "out of memory for the parts of a block");
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct sp_tensor){.sink = whole->sink,
                                    .length = whole->length / n + (i < whole->length % n),
                                    .elem = whole->elem};
        part[i] = &all[i];
    }
    return part;
}

int sp_gathered_create(struct sp_sink *s, struct sp_gathered *w, size_t n, int parts,
                       size_t elem_bytes)
{
    void *memory = s->ops->take_memory ? s->ops->take_memory(n * elem_bytes) : NULL;

    *w = (struct sp_gathered){0};
    if (s->ops->take_memory && !memory)
        return -ENOMEM;
    w->parts = parts;
    w->memory = memory;
    w->whole = sp_tensor_make_at(s, memory, n, elem_bytes, "whole");
    w->part = make_parts(w->whole, parts);
    s->ops->cut(w->whole, parts, w->part);
    return 0;
}

void sp_gathered_destroy(struct sp_gathered *w)
{
    const struct sp_sink_ops *ops;
    size_t bytes;

    if (!w->whole)
        return;
    ops = w->whole->sink->ops;
    bytes = sp_gathered_bytes(w);
    sp_gathered_join(w);
    ops->uncut(w->whole, w->parts, w->part);
    sp_tensor_unmake(w->whole);
    if (w->memory)
        ops->give_memory(w->memory, bytes);
    free(w->part[0]);
    free(w->part);
    *w = (struct sp_gathered){0};
}

static void view(struct sp_gathered *w, bool parts)
{
    if (!w->whole || w->cut == parts)
        return;
    w->whole->sink->ops->view(w->whole, w->parts, w->part, parts);
    w->cut = parts;
}

void sp_gathered_cut(struct sp_gathered *w)
{
    view(w, true);
}

void sp_gathered_join(struct sp_gathered *w)
{
    view(w, false);
}
