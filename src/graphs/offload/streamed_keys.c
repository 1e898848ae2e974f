#include "graphs/offload/streamed_keys.h"
#include "offload/host.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct sp_eviction_plan *evictions_of(const struct sp_graph *g,
                                                   const struct sp_stage *st)
{
    const struct sp_eviction_plan *all = g->cfg.evictions;

    return all && all[st->index].streamed_in ? &all[st->index] : NULL;
}

static const struct sp_tier_ops *tier_of(const struct sp_op_ctx *c)
{
    return c->g->cfg.sink->ops->tier;
}

static struct sp_layer_activations *activations_of(const struct sp_op_ctx *c, int i, int slice)
{
    return &c->fl[slice - c->slice].layers[i];
}

static int parts_of(const struct sp_op_ctx *c)
{
    return sp_shape_parts(&c->g->shape);
}

/* Part k of a layer's keys and values, or of their gradients. */
static struct sp_tensor **tensor_of(struct sp_layer_activations *t, int k, bool gradients)
{
    return gradients ? &t->heads[k].dkv : &t->heads[k].kv;
}

/* ---- to stay --------------------------------------------------------------------------------- */

static int unit_of(const struct sp_op_ctx *c, const struct sp_eviction_plan *a, int i, int slice)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    int chunk = plan->programs[c->st->index].ops[c->ctx.op_index].chunk;

    return a->activations_unit[sp_activations_index(plan, chunk, c->mb, slice)] + i;
}

/* Fetches an evicted tensor into a new buffer, before the next task. */
static struct sp_return *bring(struct sp_op_ctx *c, struct sp_place *place, bool gradients,
                               struct sp_tensor **tensor, struct sp_return *next)
{
    struct sp_meter *meter = sp_stage_meter(c->g, c->st);
    size_t elem = sp_shape_elem(c->sh);

    *tensor = sp_pool_get(c->st->local, place->bytes / elem, elem, gradients ? "dkv" : "kv");
    return tier_of(c)->fetch(&c->st->streams.evicted, *tensor, place,
                             (struct sp_memory_count){.live = gradients ? NULL : &meter->live_bytes,
                                                      .peak = &meter->peak_bytes},
                             next);
}

void sp_streamed_keys_next_layer(struct sp_op_ctx *c, int i)
{
    const struct sp_eviction_plan *a = evictions_of(c->g, c->st);
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_return *first = NULL;
    struct sp_move *own;

    if (!a)
        return;
    while (c->st->streams.n_leaving > 0)
        tier_of(c)->wait(c->st->streams.leaving[--c->st->streams.n_leaving], *c->ctx.order + 1);
    if (!t->evicted)
        return;
    for (int k = 0; k < 2 * parts_of(c); k++) {
        bool gradients = k >= parts_of(c);

        if (t->evicted[k])
            first =
                bring(c, t->evicted[k], gradients, tensor_of(t, k % parts_of(c), gradients), first);
    }
    free(t->evicted);
    t->evicted = NULL;
    own = &c->st->streams.own[unit_of(c, a, i, c->slice)];
    *own = (struct sp_move){.mover = &c->st->mover, .returns = first, .next = c->st->returning};
    c->st->returning = own;
}

void sp_streamed_keys_evict(struct sp_op_ctx *c, int i)
{
    const struct sp_eviction_plan *a = evictions_of(c->g, c->st);
    struct sp_meter *meter = sp_stage_meter(c->g, c->st);
    struct sp_layer_activations *t;
    char name[64];
    int unit;

    if (!a || c->ctx.pass != 'F' || c->slice == 0)
        return;
    unit = unit_of(c, a, i, c->slice - 1);
    if (unit < i || !a->units[unit].keys)
        return;
    t = activations_of(c, i, c->slice - 1);
    t->evicted = calloc(2 * (size_t)parts_of(c), sizeof(struct sp_place *));
    SP_NEED(t->evicted, "no memory for keys and values that leave");
    snprintf(name, sizeof name, "keys and values s%d m%d.%d l%d", c->ctx.stage, c->mb, c->slice - 1,
             c->first + i);
    for (int k = 0; k < parts_of(c); k++) {
        struct sp_tensor **kv = tensor_of(t, k, false);

        t->evicted[k] = tier_of(c)->place(&c->st->streams.evicted, sp_tensor_size(*kv), name);
        tier_of(c)->write(&c->st->streams.evicted, *kv, &(struct sp_piece){.place = t->evicted[k]},
                          1, &c->st->streams.leaving[c->st->streams.n_leaving++],
                          (struct sp_memory_count){&meter->live_bytes, &meter->peak_bytes});
        sp_pool_put(*kv);
        *kv = NULL;
    }
}

/* ---- for a moment ---------------------------------------------------------------------------- */

static size_t bytes_of(const struct sp_op_ctx *c, struct sp_place *const *evicted)
{
    size_t sum = 0;

    for (int k = 0; k < parts_of(c); k++)
        sum += sp_host_round(evicted[k]->bytes);
    return sum;
}

/* Lists where the keys and values of one streamed batch, or their gradients, are in its buffers and
 * outside memory; returns how many pieces. */
static int pieces_of(struct sp_op_ctx *c, const struct sp_key_rounds *r,
                     const struct sp_streamed_keys *stream, bool gradients, struct sp_piece *piece)
{
    size_t at = 0;
    int n = 0;

    for (int j = stream->first; j < stream->end; j++) {
        struct sp_place **evicted = r->evicted[j];

        for (int k = 0; evicted && k < parts_of(c); k++) {
            struct sp_place **place = &evicted[gradients ? parts_of(c) + k : k];

            if (!*place) {
                char name[sizeof evicted[k]->name];

                snprintf(name, sizeof name, "gradients of %.50s", evicted[k]->name);
                *place = tier_of(c)->place(&c->st->streams.evicted, evicted[k]->bytes, name);
            }
            piece[n++] = (struct sp_piece){*place, at};
            at += sp_host_round((*place)->bytes);
        }
    }
    return n;
}

static void begin_stream(struct sp_op_ctx *c, const struct sp_key_rounds *r,
                         struct sp_streamed_keys *stream)
{
    struct sp_stage *st = c->st;
    struct sp_piece piece[SP_MAX_SLICES];
    int turn = st->streams.begun++ % SP_EVICTION_STREAMS, n;

    stream->kv = st->streams.buffer[turn];
    stream->dkv = st->streams.buffer[SP_EVICTION_STREAMS + turn];
    n = pieces_of(c, r, stream, false, piece);
    SP_NEED(piece[n - 1].at + sp_host_round(piece[n - 1].place->bytes) <=
                sp_tensor_size(stream->kv),
            "internal: streamed keys exceed their planned buffer");
    tier_of(c)->read(&st->streams.evicted, stream->kv, piece, n);
    if (r->gradients && stream->made)
        tier_of(c)->read(&st->streams.evicted, stream->dkv, piece,
                         pieces_of(c, r, stream, true, piece));
}

void sp_key_rounds_plan(struct sp_op_ctx *c, struct sp_key_rounds *r)
{
    int64_t bytes = 0;

    r->n = 0;
    for (int j = 0; j < r->items; j++) {
        struct sp_place **evicted = r->evicted[j];
        bool made = evicted && evicted[parts_of(c)];

        if (!evicted)
            continue;
        if (r->n > 0 && made != r->stream[r->n - 1].made)
            bytes = 0; /* tasks of a backward write gradients, or add to them */
        if (!sp_eviction_stream_takes(evictions_of(c->g, c->st), (int64_t)bytes_of(c, evicted),
                                      &bytes))
            r->stream[r->n++] = (struct sp_streamed_keys){.first = j, .made = made};
        r->stream[r->n - 1].end = j + 1;
    }
    if (r->n > 0)
        begin_stream(c, r, &r->stream[0]);
}

void sp_key_rounds_begin(struct sp_op_ctx *c, int round, struct sp_key_rounds *r)
{
    if (round + 1 < r->n)
        begin_stream(c, r, &r->stream[round + 1]);
    c->ctx.streamed = round > 0;
}

void sp_key_rounds_end(struct sp_op_ctx *c, int round, struct sp_key_rounds *r)
{
    struct sp_piece piece[SP_MAX_SLICES];

    c->ctx.streamed = false;
    if (round > 0 && r->gradients)
        tier_of(c)->write(&c->st->streams.evicted, r->stream[round - 1].dkv, piece,
                          pieces_of(c, r, &r->stream[round - 1], true, piece), NULL,
                          (struct sp_memory_count){.live = NULL});
}

bool sp_key_rounds_has(const struct sp_op_ctx *c, const struct sp_key_rounds *r, int round,
                       int item, int part, size_t *at, struct sp_attn_keys *keys)
{
    const struct sp_streamed_keys *stream = round ? &r->stream[round - 1] : NULL;

    if (item >= r->items || !r->evicted[item])
        return round == 0;
    if (!stream || item < stream->first || item >= stream->end)
        return false;
    keys->at = *at / sp_shape_elem(c->sh);
    keys->kv = stream->kv;
    keys->dkv = stream->dkv;
    *at += sp_host_round(r->evicted[item][part]->bytes);
    return true;
}

/* ---- tensors that other stages make or read ---------------------------------------------------- */

bool sp_streamed_keys_any(const struct sp_graph *g, const struct sp_stage *st)
{
    return evictions_of(g, st) != NULL;
}

struct sp_place *sp_streamed_keys_leave(struct sp_graph *g, struct sp_stage *st,
                                        struct sp_tensor *kv, const char *name)
{
    const struct sp_tier_ops *tier = g->cfg.sink->ops->tier;
    struct sp_place *place = tier->place(&st->streams.evicted, sp_tensor_size(kv), name);

    tier->write(&st->streams.evicted, kv, &(struct sp_piece){.place = place}, 1, NULL,
                (struct sp_memory_count){.live = NULL});
    return place;
}

struct sp_tensor *sp_streamed_keys_return(struct sp_graph *g, struct sp_stage *st,
                                          struct sp_place *place)
{
    const struct sp_tier_ops *tier = g->cfg.sink->ops->tier;
    size_t elem = sp_shape_elem(&g->shape);
    struct sp_tensor *dkv = sp_pool_get(st->local, place->bytes / elem, elem, "dkv");

    tier->read(&st->streams.evicted, dkv, &(struct sp_piece){.place = place}, 1);
    tier->forget(place);
    return dkv;
}

/* ---- of a stage ------------------------------------------------------------------------------ */

int sp_streamed_keys_create(struct sp_graph *g, struct sp_stage *st)
{
    const struct sp_eviction_plan *a = evictions_of(g, st);
    size_t elem = sp_shape_elem(&g->shape);

    if (!a)
        return 0;
    for (int i = 0; i < 2 * SP_EVICTION_STREAMS; i++)
        st->streams.buffer[i] =
            sp_tensor_make(g->cfg.sink, (size_t)a->streamed_largest / elem, elem,
                           i < SP_EVICTION_STREAMS ? "visiting kv" : "visiting dkv");
    st->streams.own = calloc((size_t)a->n_units, sizeof *st->streams.own);
    st->streams.leaving = calloc((size_t)sp_shape_parts(&g->shape), sizeof(struct sp_leave *));
    return st->streams.own && st->streams.leaving
               ? g->cfg.sink->ops->tier->evicted_start(&st->streams.evicted, &st->mover,
                                                       g->cfg.disk)
               : -ENOMEM;
}

void sp_streamed_keys_destroy(struct sp_graph *g, struct sp_stage *st)
{
    if (!evictions_of(g, st))
        return;
    for (int i = 0; i < 2 * SP_EVICTION_STREAMS; i++)
        sp_tensor_unmake(st->streams.buffer[i]);
    g->cfg.sink->ops->tier->evicted_stop(&st->streams.evicted);
    free(st->streams.own);
    free(st->streams.leaving);
}
