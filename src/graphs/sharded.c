/*
 * The sharded family (ZeRO-3, FSDP): a worker keeps its micro-batches and a P-th of every block.
 *
 *   before F(mb, c), B(mb, c)   gather: the shards of a unit from their owners, one unit ahead
 *   after B(mb, c)              scatter: the parts of the unit's gradient to the owners of the shards,
 *                               who add those of all workers, in the order of the backwards, whatever
 *                               the processes, before their own op after the next; of backwards of a
 *                               unit in a row after the last
 *
 * Two units of weights are whole on a worker, one at work and the next one, and up to three of
 * gradients: at work, on its way, and with owners that are behind. A unit that two ops in a row use, the
 * last chunk's forward and backward, stays. Embedding and head are gathered once a step, and their
 * gradients scattered once: they are small beside the layers, or used by every micro-batch twice. Owners
 * send to every other worker directly, so that nobody passes on what he does not need.
 */
#include "graphs/chunk.h"
#include "graphs/family.h"
#include "graphs/message.h"
#include "graphs/whole.h"
#include "policies/families/sharded/shards.h"
#include "sp_error.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Blocks in a row, and their handles as layers take them. */
struct unit {
    int n;
    struct sp_whole *whole;       /* [n] */
    starpu_data_handle_t *handle; /* [n] NULL: the model has no such block */
};

/* A part of a gradient that an owner is to add. */
struct part {
    struct sp_block *block;
    starpu_data_handle_t handle;
    const struct unit *unit; /* whose part it is, NULL: received into a buffer */
    int index;               /* of the op in the program that it comes from */
};

enum { GRADIENTS = 3 };

struct sp_shards {
    struct unit weights[2], gradients[GRADIENTS]; /* [3 * layers of the largest chunk] */
    unsigned char *weights_of;                    /* [ops] which of them an op computes with */
    int gradient;                                 /* which is in use */
    int next;                                     /* op to run */
    struct unit end_weights, end_gradients;       /* [SP_BLOCK_KINDS] */
    struct part *parts;                           /* to be added, in order */
    int n_parts, cap_parts;
};

static int workers(const struct sp_graph *g)
{
    return g->place.stages;
}

static const struct sp_program *program(const struct sp_graph *g, int worker)
{
    return &g->cfg.plan->programs[worker];
}

static void layers_of(const struct sp_graph *g, int chunk, int *first, int *count)
{
    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, 0, chunk, first, count);
}

static size_t held(const struct sp_graph *g, enum sp_block_kind kind)
{
    return sp_block_held(g->cfg.plan, &g->shape.model, kind);
}

/* ---- blocks of a unit ------------------------------------------------------------------------ */

/* Embedding and head, where a chunk is meant otherwise. */
enum { ENDS = -1 };

/* Block i of a chunk or of the ends; false: the model has none there. */
struct which {
    enum sp_block_kind kind;
    int layer;
};

static int blocks_of(const struct sp_graph *g, int chunk)
{
    int first, count;

    if (chunk == ENDS)
        return SP_BLOCK_KINDS;
    layers_of(g, chunk, &first, &count);
    return 3 * count;
}

static bool block_of(const struct sp_graph *g, int chunk, int i, struct which *block)
{
    int first, count;

    if (chunk == ENDS) {
        *block = (struct which){(enum sp_block_kind)i, -1};
        return !sp_block_is_of_layer(block->kind) &&
               sp_block_elements(&g->shape.model, block->kind) > 0;
    }
    layers_of(g, chunk, &first, &count);
    *block = (struct which){(enum sp_block_kind)(SP_BLOCK_NORM1 + i % 3), first + i / 3};
    return true;
}

/* Tags come back after so many ops of a worker, when their messages have long arrived. */
enum { TAGGED_OPS = 1 << 10 };

static int64_t tag_of(const struct sp_graph *g, enum sp_message message, int index,
                      const struct which *b, int from, int to)
{
    int64_t layers = g->shape.model.layers;
    int64_t block = b->layer < 0 ? 3 * layers + b->kind : 3 * b->layer + b->kind - SP_BLOCK_NORM1;

    return sp_tag(g, message, index % TAGGED_OPS * (3 * layers + SP_BLOCK_KINDS) + block,
                  (int64_t)from * workers(g) + to);
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Into `unit`, for the op at `index`. */
static void gather(struct sp_graph *g, struct sp_stage *st, const struct sp_task_context *ctx,
                   struct unit *unit, int chunk, int index)
{
    struct sp_task_context copy = *ctx, receive = *ctx;
    struct which b;

    receive.op_index = index;
    for (int i = 0; i < blocks_of(g, chunk); i++) {
        if (!block_of(g, chunk, i, &b))
            continue;
        copy.layer = b.layer;
        sp_whole_cut(&unit->whole[i]);
        for (int r = 0; r < workers(g); r++) {
            struct sp_stage *owner = sp_graph_stage(g, r);

            if (owner)
                sp_copy_insert(&copy, sp_stage_block(owner, b.kind, b.layer)->w,
                               unit->whole[i].part[r]);
            else
                sp_message_expect(g, &receive, unit->whole[i].part[r], r,
                                  tag_of(g, SP_MSG_GATHER, index, &b, r, st->index));
        }
        sp_whole_join(&unit->whole[i]);
    }
}

/* The shards of this process, to a worker of another that gathers for its op at `index`. */
static void send_shards(struct sp_graph *g, int chunk, int to, int index)
{
    struct which b;

    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        for (int i = 0; i < blocks_of(g, chunk); i++)
            if (block_of(g, chunk, i, &b))
                sp_message_post(g, st, sp_stage_block(st, b.kind, b.layer)->w, to,
                                tag_of(g, SP_MSG_GATHER, index, &b, st->index, to));
    }
}

/* ---- scatter ----------------------------------------------------------------------------------- */

static void queue(struct sp_stage *owner, struct part part)
{
    struct sp_shards *s = owner->shards;

    if (s->n_parts == s->cap_parts) {
        int cap = s->cap_parts ? 2 * s->cap_parts : 64;
        struct part *more = realloc(s->parts, (size_t)cap * sizeof *more);

        STARPU_ASSERT_MSG(more, "starpipe: no memory for %d gradients", cap);
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
        struct part *p = &s->parts[i];

        ctx.layer = p->block->layer;
        sp_sum_insert(&ctx, SP_F32, p->block->g, p->handle, false);
        if (!p->unit)
            sp_pool_put(p->handle);
    }
    s->n_parts -= n;
    memmove(s->parts, s->parts + n, (size_t)s->n_parts * sizeof *s->parts);
}

/* Parts at the head of the queue that come from ops up to `index`: those after them wait their turn. */
static int parts_until(const struct sp_stage *owner, int index)
{
    const struct sp_shards *s = owner->shards;
    int n = 0;

    while (n < s->n_parts && s->parts[n].index <= index)
        n++;
    return n;
}

/* Parts up to the last one of a unit. */
static int parts_of(const struct sp_stage *owner, const struct unit *unit)
{
    const struct sp_shards *s = owner->shards;
    int n = s->n_parts;

    while (n > 0 && s->parts[n - 1].unit != unit)
        n--;
    return n;
}

/* The gradients of a unit on a worker of this process, to their owners. */
static void scatter(struct sp_graph *g, struct sp_stage *st, struct unit *unit, int chunk,
                    int index)
{
    struct which b;

    for (int i = 0; i < blocks_of(g, chunk); i++) {
        if (!block_of(g, chunk, i, &b))
            continue;
        sp_whole_cut(&unit->whole[i]);
        for (int r = 0; r < workers(g); r++) {
            struct sp_stage *owner = sp_graph_stage(g, r);
            starpu_data_handle_t part = unit->whole[i].part[r];

            if (owner)
                queue(owner,
                      (struct part){sp_stage_block(owner, b.kind, b.layer), part, unit, index});
            else
                sp_message_post(g, st, part, r, tag_of(g, SP_MSG_SCATTER, index, &b, st->index, r));
        }
    }
}

/* The same of a worker of another process: what it sends to the owners in this one. */
static void receive_parts(struct sp_graph *g, int from, int chunk, int index)
{
    struct which b;

    for (int i = 0; i < blocks_of(g, chunk); i++) {
        if (!block_of(g, chunk, i, &b))
            continue;
        for (int k = 0; k < g->place.n_local; k++) {
            struct sp_stage *owner = &g->stages[k];
            struct sp_task_context ctx = sp_stage_context(g, owner, 'T');
            starpu_data_handle_t part =
                sp_pool_get(owner->boundary, held(g, b.kind), sizeof(float), "gradient part");

            sp_message_expect(g, &ctx, part, from,
                              tag_of(g, SP_MSG_SCATTER, index, &b, from, owner->index));
            queue(owner, (struct part){sp_stage_block(owner, b.kind, b.layer), part, NULL, index});
        }
    }
}

/* Zeros in a unit of gradients, whose parts have all been added. */
static void clear_unit(struct sp_graph *g, const struct sp_task_context *ctx, struct unit *unit,
                       int chunk)
{
    struct sp_task_context clear = *ctx;
    struct which b;

    for (int i = 0; i < blocks_of(g, chunk); i++) {
        if (!block_of(g, chunk, i, &b))
            continue;
        clear.layer = b.layer;
        sp_whole_join(&unit->whole[i]);
        sp_clear_insert(&clear, unit->handle[i]);
    }
}

/* Zeros, where the gradients of three units before were. */
static void take_gradients(struct sp_graph *g, struct sp_stage *st,
                           const struct sp_task_context *ctx, int chunk)
{
    struct sp_shards *s = st->shards;
    struct unit *unit;

    s->gradient = (s->gradient + 1) % GRADIENTS;
    unit = &s->gradients[s->gradient];
    for (int k = 0; k < g->place.n_local; k++) { /* owners that an unusual order left behind */
        struct sp_stage *owner = &g->stages[k];

        add_parts(owner, sp_stage_context(g, owner, 'T'), parts_of(owner, unit));
    }
    clear_unit(g, ctx, unit, chunk);
}

/* ---- ops --------------------------------------------------------------------------------------- */

/* The weights and gradients of an op. */
static void arm(struct sp_op_ctx *c, int index)
{
    struct sp_shards *s = c->st->shards;
    const struct sp_program *prog = program(c->g, c->st->index);
    const struct sp_op *op = &prog->ops[index];

    add_parts(c->st, c->ctx, parts_until(c->st, index - 2));
    if (index == 0)
        clear_unit(c->g, &c->ctx, &s->end_gradients, ENDS);
    c->w = s->weights[s->weights_of[index]].handle;
    c->end_w = s->end_weights.handle;
    if (op->pass != SP_B)
        return;
    if (sp_shards_add_first(prog, index))
        take_gradients(c->g, c->st, &c->ctx, op->chunk);
    c->gradient = s->gradients[s->gradient].handle;
    c->end_gradient = s->end_gradients.handle;
}

static struct sp_chunk_flight *flight(const struct sp_op_ctx *c, int chunk)
{
    const struct sp_layout *lay = &c->g->cfg.plan->layout;
    int P = lay->stages;

    return &c->st->flights[chunk * (lay->micro_batches / P) + c->mb / P];
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_op *op = &a->op;
    int last = g->cfg.plan->layout.chunks - 1;
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->shape,
        .ctx = sp_stage_context(g, st, op->pass == SP_F ? 'F' : 'B'),
        .mb = op->mb,
    };

    c.ctx.op_index = a->index;
    c.ctx.mb = op->mb;
    c.ctx.op = sp_window_open(g->window, g->turn);
    layers_of(g, op->chunk, &c.first, &c.count);
    c.fl = flight(&c, op->chunk);
    if (workers(g) > 1)
        arm(&c, a->index);
    if (op->pass == SP_F) {
        sp_chunk_forward(&c, op->chunk < last ? flight(&c, op->chunk + 1) : NULL);
    } else {
        if (op->chunk == last) {
            c.fl->grad = sp_take_hidden(&c, "dx");
            sp_chunk_head(&c, c.mb, c.fl->grad);
        }
        sp_chunk_backward(&c, op->chunk > 0 ? flight(&c, op->chunk - 1) : NULL);
    }
    sp_op_close(&c.ctx);
    if (workers(g) > 1)
        st->shards->next = a->index + 1;
}

/* A gather or scatter of a worker: its half of it, or what this process does for another's. */
static void collective(struct sp_graph *g, const struct sp_action *a)
{
    struct sp_stage *st = sp_graph_stage(g, a->stage);
    struct sp_shards *s = st ? st->shards : NULL;
    int chunk = a->tensor.at;

    if (a->kind == SP_ACTION_GATHER && st) {
        struct sp_task_context ctx = sp_stage_context(g, st, 'F');

        ctx.op_index = s->next;
        ctx.mb = program(g, a->stage)->ops[s->next].mb;
        gather(g, st, &ctx, chunk < 0 ? &s->end_weights : &s->weights[s->weights_of[a->index]],
               chunk, a->index);
    } else if (a->kind == SP_ACTION_GATHER) {
        send_shards(g, chunk, a->stage, a->index);
    } else if (st) {
        scatter(g, st, chunk < 0 ? &s->end_gradients : &s->gradients[s->gradient], chunk, a->index);
    } else {
        receive_parts(g, a->stage, chunk, a->index);
    }
}

static void end(struct sp_graph *g)
{
    for (int k = 0; workers(g) > 1 && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        add_parts(st, sp_stage_context(g, st, 'T'), st->shards->n_parts);
        st->shards->next = 0;
    }
}

/* ---- the family -------------------------------------------------------------------------------- */

/* A unit as large as the largest chunk, or the ends. */
static int create_unit(struct sp_graph *g, struct sp_stage *st, struct unit *unit, int chunk,
                       size_t elem)
{
    int n = blocks_of(g, chunk), err = 0;
    struct which b;

    *unit = (struct unit){.n = n};
    unit->whole = calloc((size_t)n, sizeof *unit->whole);
    unit->handle = calloc((size_t)n, sizeof(starpu_data_handle_t));
    if (!unit->whole || !unit->handle)
        return -ENOMEM;
    for (int i = 0; !err && i < n; i++) {
        if (!block_of(g, chunk, i, &b))
            continue;
        if (held(g, b.kind) * (size_t)workers(g) > UINT32_MAX)
            return sp_error(EINVAL, "a block of %zu parameters cannot be gathered, %u are most",
                            held(g, b.kind) * (size_t)workers(g), UINT32_MAX);
        err = sp_whole_create(&unit->whole[i], held(g, b.kind), workers(g), elem);
        unit->handle[i] = unit->whole[i].handle;
        st->whole_bytes += sp_whole_bytes(&unit->whole[i]);
    }
    return err;
}

static void destroy_unit(struct unit *unit)
{
    for (int i = 0; unit->whole && i < unit->n; i++)
        sp_whole_destroy(&unit->whole[i]);
    free(unit->whole);
    free(unit->handle);
}

static int create_shards(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_shards *s = calloc(1, sizeof *s);
    const struct sp_program *prog = program(g, st->index);
    size_t weight = sp_shape_elem(&g->shape), gradient = sizeof(float);
    int largest = 0, err;

    st->shards = s;
    if (!s)
        return -ENOMEM;
    s->weights_of = calloc((size_t)prog->n, 1);
    if (!s->weights_of)
        return -ENOMEM;
    for (int k = 1; k < prog->n; k++)
        s->weights_of[k] = s->weights_of[k - 1] ^ sp_shards_change(prog, k);
    for (int c = 1; c < g->cfg.plan->layout.chunks; c++)
        largest = blocks_of(g, c) > blocks_of(g, largest) ? c : largest;
    err = create_unit(g, st, &s->end_weights, ENDS, weight);
    err = err ? err : create_unit(g, st, &s->end_gradients, ENDS, gradient);
    for (int i = 0; !err && i < 2; i++)
        err = create_unit(g, st, &s->weights[i], largest, weight);
    for (int i = 0; !err && i < GRADIENTS; i++)
        err = create_unit(g, st, &s->gradients[i], largest, gradient);
    return err;
}

static int create(struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        err = sp_flights_create(g, st, lay->chunks, lay->micro_batches / lay->stages);
        if (!err && workers(g) > 1)
            err = create_shards(g, st);
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_shards *s = g->stages[k].shards;

        sp_flights_destroy(&g->stages[k]);
        if (!s)
            continue;
        for (int i = 0; i < 2; i++)
            destroy_unit(&s->weights[i]);
        for (int i = 0; i < GRADIENTS; i++)
            destroy_unit(&s->gradients[i]);
        destroy_unit(&s->end_weights);
        destroy_unit(&s->end_gradients);
        free(s->parts);
        free(s->weights_of);
        free(s);
    }
}

const struct sp_graph_family sp_graph_sharded = {
    .create = create,
    .destroy = destroy,
    .end = end,
    .run = run,
    .collective = collective,
};
