/*
 * The sharded family (ZeRO-3, FSDP): a worker keeps its micro-batches and a P-th of every block.
 *
 *   before F(mb, c), B(mb, c)   gather: the shards of a unit from their owners, one unit ahead
 *   after B(mb, c)              scatter: the parts of the unit's gradient to the owners of the
 *                               shards. They add those of all workers, in the order of the
 *                               backwards in any process, before their own op after the next; of
 *                               consecutive backwards of a unit only after the last
 *
 * A worker has two gathered units of weights, one in use and the next one, and up to three of
 * gradients: in use, on its way, and with owners that are behind. A unit that two consecutive ops
 * use, the last chunk's forward and backward, stays. Embedding and head are gathered once a step,
 * and their gradients scattered once: they are small compared with the layers, or every micro-batch
 * uses them twice. Owners send to every other worker directly, so that no worker forwards what it
 * does not need.
 */
#include "graphs/families/chunk.h"
#include "graphs/families/family.h"
#include "graphs/families/shards.h"
#include "policies/families/sharded/shards.h"
#include "sp_error.h"
#include <limits.h>
#include <stdlib.h>

static const struct sp_program *program(const struct sp_graph *g, int worker)
{
    return &g->cfg.plan->programs[worker];
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* Sets the weights and gradients of an op. */
static void arm(struct sp_op_ctx *c, int index)
{
    struct sp_shards *s = c->st->shards;
    const struct sp_program *prog = program(c->g, c->st->index);
    const struct sp_op *op = &prog->ops[index];

    sp_shards_add(c->st, c->ctx, index - 2);
    if (index == 0)
        sp_unit_clear(c->g, &c->ctx, &s->end_gradients, SP_SHARDS_ENDS);
    c->w = s->weights[s->weights_of[index]].handle;
    c->end_w = s->end_weights.handle;
    if (op->pass != SP_B)
        return;
    if (sp_shards_add_first(prog, index))
        sp_shards_take_gradients(c->g, c->st, &c->ctx, op->chunk);
    c->gradient = s->gradients[s->gradient].handle;
    c->end_gradient = s->end_gradients.handle;
}

static struct sp_chunk_activations *activations(const struct sp_op_ctx *c, int chunk)
{
    const struct sp_layout *lay = &c->g->cfg.plan->layout;
    int P = lay->stages;

    return &c->st->activations[chunk * (lay->micro_batches / P) + c->mb / P];
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_op *op = &a->op;
    int last = g->cfg.plan->layout.chunks - 1;
    struct sp_op_ctx c = sp_op_open(g, st, op, a->index);

    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, 0, op->chunk, &c.first, &c.count);
    c.fl = activations(&c, op->chunk);
    if (g->place.stages > 1)
        arm(&c, a->index);
    if (op->pass == SP_F) {
        sp_chunk_forward(&c, op->chunk < last ? activations(&c, op->chunk + 1) : NULL);
    } else {
        if (op->chunk == last) {
            c.fl->grad = sp_take_hidden(&c, "dx");
            sp_chunk_head_of_output(&c, c.mb, c.fl->grad);
        }
        sp_chunk_backward(&c, op->chunk > 0 ? activations(&c, op->chunk - 1) : NULL);
    }
    sp_op_close(&c.ctx);
    if (g->place.stages > 1)
        st->shards->next = a->index + 1;
}

static void end(struct sp_graph *g)
{
    for (int k = 0; g->place.stages > 1 && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        sp_shards_add(st, sp_stage_context(g, st, 'T'), INT_MAX);
        st->shards->next = 0;
    }
}

/* ---- the family ------------------------------------------------------------------------------ */

static int create_shards(struct sp_graph *g, struct sp_stage *st)
{
    const struct sp_program *prog = program(g, st->index);
    size_t weight = sp_shape_elem(&g->shape), gradient = sizeof(float);
    int largest = 0, err = sp_shards_create(g, st);
    struct sp_shards *s = st->shards;

    if (err)
        return err;
    s->weights_of = calloc((size_t)prog->n, 1);
    if (!s->weights_of)
        return -ENOMEM;
    for (int k = 1; k < prog->n; k++)
        s->weights_of[k] = s->weights_of[k - 1] ^ sp_shards_change(prog, k);
    for (int c = 1; c < g->cfg.plan->layout.chunks; c++)
        largest = sp_unit_blocks(g, c) > sp_unit_blocks(g, largest) ? c : largest;
    for (int i = 0; !err && i < 2; i++)
        err = sp_unit_create(g, st, &s->weights[i], largest, weight);
    for (int i = 0; !err && i < SP_SHARD_GRADIENTS; i++)
        err = sp_unit_create(g, st, &s->gradients[i], largest, gradient);
    return err;
}

static int create(struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        err = sp_activations_create(g, st, lay->chunks, lay->micro_batches / lay->stages);
        if (!err && g->place.stages > 1)
            err = create_shards(g, st);
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        sp_activations_destroy(&g->stages[k]);
        sp_shards_destroy(&g->stages[k]);
    }
}

const struct sp_graph_family sp_graph_sharded = {
    .create = create,
    .destroy = destroy,
    .end = end,
    .run = run,
    .collective = sp_shards_collective,
};
