#include "graphs/families/shards.h"
#include "graphs/message.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- units ---------------------------------------------------------------------------------- */

static void layers_of(const struct sp_graph *g, int chunk, int *first, int *count)
{
    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, 0, chunk, first, count);
}

static size_t held(const struct sp_graph *g, enum sp_block_kind kind)
{
    return sp_block_held(g->cfg.plan, &g->shape.held, kind);
}

int sp_unit_blocks(const struct sp_graph *g, int chunk)
{
    int first, count;

    if (chunk == SP_SHARDS_ENDS)
        return SP_BLOCK_KINDS;
    layers_of(g, chunk, &first, &count);
    return SP_LAYER_BLOCKS * count;
}

bool sp_unit_block(const struct sp_graph *g, int chunk, int i, struct sp_unit_block *block)
{
    int first, count;

    if (chunk == SP_SHARDS_ENDS) {
        *block = (struct sp_unit_block){(enum sp_block_kind)i, -1};
        return !sp_block_is_of_layer(block->kind) &&
               sp_block_is_gathered(g->cfg.plan, block->kind) &&
               sp_block_elements(&g->shape.held, block->kind) > 0;
    }
    layers_of(g, chunk, &first, &count);
    *block = (struct sp_unit_block){sp_layer_block(i), first + i / SP_LAYER_BLOCKS};
    return true;
}

int sp_unit_create(struct sp_graph *g, struct sp_stage *st, struct sp_gathered_unit *unit,
                   int chunk, size_t elem)
{
    int n = sp_unit_blocks(g, chunk), err = 0;
    struct sp_unit_block b;

    *unit = (struct sp_gathered_unit){.n = n};
    unit->block = calloc((size_t)n, sizeof *unit->block);
    unit->handle = calloc((size_t)n, sizeof(struct sp_tensor *));
    if (!unit->block || !unit->handle)
        return -ENOMEM;
    for (int i = 0; !err && i < n; i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        if (held(g, b.kind) * (size_t)g->place.stages > UINT32_MAX)
            return sp_error(EINVAL, "a block of %zu parameters cannot be gathered, %u are most",
                            held(g, b.kind) * (size_t)g->place.stages, UINT32_MAX);
        err = sp_gathered_create(g->cfg.sink, &unit->block[i],
                                 held(g, b.kind) * (size_t)g->place.stages, g->place.stages, elem);
        unit->handle[i] = unit->block[i].whole;
        st->gathered_bytes += sp_gathered_bytes(&unit->block[i]);
    }
    return err;
}

void sp_unit_destroy(struct sp_gathered_unit *unit)
{
    for (int i = 0; unit->block && i < unit->n; i++)
        sp_gathered_destroy(&unit->block[i]);
    free(unit->block);
    free(unit->handle);
}

void sp_unit_clear(struct sp_graph *g, const struct sp_task_context *ctx,
                   struct sp_gathered_unit *unit, int chunk)
{
    struct sp_task_context clear = *ctx;
    struct sp_unit_block b;

    for (int i = 0; i < sp_unit_blocks(g, chunk); i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        clear.layer = b.layer;
        sp_gathered_join(&unit->block[i]);
        sp_clear_insert(&clear, unit->handle[i]);
    }
}

/* ---- gathers, scatters, and sums of gradients ------------------------------------------------ */

int sp_shards_create(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_shards *s = st->shards = calloc(1, sizeof *s);
    int err = s ? sp_unit_create(g, st, &s->end_weights, SP_SHARDS_ENDS, sp_shape_elem(&g->shape))
                : -ENOMEM;

    return err ? err : sp_unit_create(g, st, &s->end_gradients, SP_SHARDS_ENDS, sizeof(float));
}

void sp_shards_destroy(struct sp_stage *st)
{
    struct sp_shards *s = st->shards;

    if (!s)
        return;
    for (int i = 0; i < 2; i++)
        sp_unit_destroy(&s->weights[i]);
    for (int i = 0; i < SP_SHARD_GRADIENTS; i++)
        sp_unit_destroy(&s->gradients[i]);
    sp_unit_destroy(&s->end_weights);
    sp_unit_destroy(&s->end_gradients);
    free(s->parts);
    free(s->weights_of);
    free(s);
    st->shards = NULL;
}

/* The number of the message of a gather or scatter for block i and another stage. */
static int message_of(const struct sp_action *a, int i, int other)
{
    return i * a->members + other;
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Gathers the shards of a chunk into `unit`. */
static void gather(struct sp_graph *g, const struct sp_task_context *ctx,
                   struct sp_gathered_unit *unit, const struct sp_action *a)
{
    int chunk = a->tensor.at;
    struct sp_task_context copy = *ctx, receive = *ctx;
    struct sp_unit_block b;

    receive.op_index = a->index;
    for (int i = 0; i < sp_unit_blocks(g, chunk); i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        copy.layer = b.layer;
        sp_gathered_cut(&unit->block[i]);
        for (int r = 0; r < g->place.stages; r++) {
            struct sp_stage *owner = sp_graph_stage(g, r);

            if (owner)
                sp_copy_insert(&copy, sp_stage_weight(owner, b.kind, b.layer),
                               unit->block[i].part[r]);
            else
                sp_message_expect(g, &receive, a, message_of(a, i, r), unit->block[i].part[r], r);
        }
        sp_gathered_join(&unit->block[i]);
    }
}

/* Sends the shards of this process to a gathering worker of another process. */
static void send_shards(struct sp_graph *g, const struct sp_action *a)
{
    int chunk = a->tensor.at;
    struct sp_unit_block b;

    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        for (int i = 0; i < sp_unit_blocks(g, chunk); i++)
            if (sp_unit_block(g, chunk, i, &b))
                sp_message_post(g, st, a, message_of(a, i, st->index),
                                sp_stage_weight(st, b.kind, b.layer), a->stage);
    }
}

/* ---- scatter --------------------------------------------------------------------------------- */

static void queue(struct sp_stage *owner, struct sp_shard_part part)
{
    struct sp_shards *s = owner->shards;

    if (s->n_parts == s->cap_parts) {
        int cap = s->cap_parts ? 2 * s->cap_parts : 64;
        struct sp_shard_part *more = realloc(s->parts, (size_t)cap * sizeof *more);

        SP_NEED(more, "no memory for %d gradients", cap);
        s->parts = more;
        s->cap_parts = cap;
    }
    s->parts[s->n_parts++] = part;
}

/* Adds the first n parts of the queue. */
static void add_parts(struct sp_stage *owner, struct sp_task_context ctx, int n)
{
    struct sp_shards *s = owner->shards;

    if (n == 0)
        return;
    for (int i = 0; i < n; i++) {
        struct sp_shard_part *p = &s->parts[i];

        ctx.layer = p->block->layer;
        sp_sum_insert(&ctx, SP_F32, p->block->g, p->handle, false);
        if (!p->unit)
            sp_pool_put(p->handle);
    }
    s->n_parts -= n;
    memmove(s->parts, s->parts + n, (size_t)s->n_parts * sizeof *s->parts);
}

void sp_shards_add(struct sp_stage *st, struct sp_task_context ctx, int index)
{
    const struct sp_shards *s = st->shards;
    int n = 0;

    while (n < s->n_parts && s->parts[n].index <= index)
        n++;
    add_parts(st, ctx, n);
}

/* The number of queued parts up to the last one of a unit. */
static int parts_of(const struct sp_stage *owner, const struct sp_gathered_unit *unit)
{
    const struct sp_shards *s = owner->shards;
    int n = s->n_parts;

    while (n > 0 && s->parts[n - 1].unit != unit)
        n--;
    return n;
}

/* Scatters the gradients of a unit on a worker of this process to their owners. */
static void scatter(struct sp_graph *g, struct sp_stage *st, struct sp_gathered_unit *unit,
                    const struct sp_action *a)
{
    int chunk = a->tensor.at;
    struct sp_unit_block b;

    for (int i = 0; i < sp_unit_blocks(g, chunk); i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        sp_gathered_cut(&unit->block[i]);
        for (int r = 0; r < g->place.stages; r++) {
            struct sp_stage *owner = sp_graph_stage(g, r);
            struct sp_tensor *part = unit->block[i].part[r];

            if (owner)
                queue(owner, (struct sp_shard_part){sp_stage_block(owner, b.kind, b.layer), part,
                                                    unit, a->index});
            else
                sp_message_post(g, st, a, message_of(a, i, r), part, r);
        }
    }
}

/* The same for a worker of another process: receives what it sends to the owners in this one. */
static void receive_parts(struct sp_graph *g, const struct sp_action *a)
{
    int chunk = a->tensor.at;
    struct sp_unit_block b;

    for (int i = 0; i < sp_unit_blocks(g, chunk); i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        for (int k = 0; k < g->place.n_local; k++) {
            struct sp_stage *owner = &g->stages[k];
            struct sp_task_context ctx = sp_stage_context(g, owner, 'T');
            /* those of embedding and head come once a step */
            struct sp_pool *pool = chunk < 0 ? owner->local : owner->boundary;
            struct sp_tensor *part =
                sp_pool_get(pool, held(g, b.kind), sizeof(float), "gradient part");

            sp_message_expect(g, &ctx, a, message_of(a, i, owner->index), part, a->stage);
            queue(owner, (struct sp_shard_part){sp_stage_block(owner, b.kind, b.layer), part, NULL,
                                                a->index});
        }
    }
}

void sp_shards_take_gradients(struct sp_graph *g, struct sp_stage *st,
                              const struct sp_task_context *ctx, int chunk)
{
    struct sp_shards *s = st->shards;
    struct sp_gathered_unit *unit;

    s->gradient = (s->gradient + 1) % SP_SHARD_GRADIENTS;
    unit = &s->gradients[s->gradient];
    for (int k = 0; k < g->place.n_local; k++) { /* lets owners catch up that an unusual order left
                                                  * behind */
        struct sp_stage *owner = &g->stages[k];

        add_parts(owner, sp_stage_context(g, owner, 'T'), parts_of(owner, unit));
    }
    sp_unit_clear(g, ctx, unit, chunk);
}

void sp_shards_collective(struct sp_graph *g, const struct sp_action *a)
{
    struct sp_stage *st = sp_graph_stage(g, a->stage);
    struct sp_shards *s = st ? st->shards : NULL;
    int chunk = a->tensor.at;

    if (a->kind == SP_ACTION_GATHER && st) {
        struct sp_task_context ctx = sp_stage_context(g, st, 'F');

        ctx.op_index = s->next;
        ctx.mb = g->cfg.plan->programs[a->stage].ops[s->next].mb;
        gather(g, &ctx, chunk < 0 ? &s->end_weights : &s->weights[s->weights_of[a->index]], a);
    } else if (a->kind == SP_ACTION_GATHER) {
        send_shards(g, a);
    } else if (st) {
        scatter(g, st, chunk < 0 ? &s->end_gradients : &s->gradients[s->gradient], a);
    } else {
        receive_parts(g, a);
    }
}
