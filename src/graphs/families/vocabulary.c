/*
 * Layerwise stages that share the vocabulary:
 *
 *   F(mb, last chunk):   ... layers   n = norm(x)                                -> all stages
 *   L(mb):               Z = n E_s^T, statistics of the rows that are here        -> all stages
 *   bL(mb):              lse of all; dZ, part of dn, dE_s +=                      -> the last chunk's stage
 *   B(mb, last chunk):   dn = sum of all parts, dx; layers ...
 *
 * The table of the embedding, whose rows lie on all stages, is whole on the stage that embeds from the gather before
 * its first op to the scatter of its gradient after the last one: as embedding and head are in the sharded family.
 */
#include "graphs/families/vocabulary.h"
#include "graphs/families/layerwise.h"
#include "graphs/families/shards.h"
#include "policies/families/ownership.h"
#include "policies/families/sharded/shards.h"
#include <limits.h>
#include <stdlib.h>

static int stages_of(const struct sp_op_ctx *c)
{
    return c->g->cfg.plan->layout.stages;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static struct sp_tensor_id tensor(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int at)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = (unsigned short)c->slice, .mb = c->mb, .at = at};
}

static struct sp_tensor_id input(const struct sp_op_ctx *c)
{
    return tensor(c, SP_TENSOR_N1, sp_globals(&c->g->cfg.plan->layout) - 1);
}

static starpu_data_handle_t find(const struct sp_op_ctx *c, struct sp_tensor_id id)
{
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    STARPU_ASSERT_MSG(t, "starpipe: stage %d: no %s of stage %d for the head", c->st->index,
                      sp_tensor_name((enum sp_tensor_kind)id.kind), id.at);
    return t->piece[0];
}

static void leave(struct sp_op_ctx *c, struct sp_tensor_id id, starpu_data_handle_t handle)
{
    sp_store_put(&c->st->store, &id, 1, &handle, true);
}

static int unit_of(const struct sp_op_ctx *c)
{
    return c->mb * c->g->cfg.plan->layout.slices + c->slice;
}

/* ---- in ops of the last chunk ----------------------------------------------------------------- */

void sp_vocabulary_input(struct sp_op_ctx *c)
{
    starpu_data_handle_t n = sp_take_boundary(c, c->st, "n");

    c->ctx.layer = -1;
    c->fl->norm = sp_pool_get(c->st->local, sp_shape_pre_saved(c->sh, false), sp_shape_elem(c->sh),
                              "statistics");
    sp_norm_fwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = c->fl->out, .saved = c->fl->norm}, n,
                       sp_weight(c, SP_BLOCK_NORM, -1), 0);
    leave(c, input(c), n);
}

void sp_vocabulary_gradient(struct sp_op_ctx *c, starpu_data_handle_t dx)
{
    int stages = stages_of(c), n = 0;
    starpu_data_handle_t part[stages];
    int64_t released = (int64_t)starpu_data_get_size(c->fl->out);

    for (int s = 0; s < stages; s++)
        if (s != c->st->index)
            part[n++] = find(c, tensor(c, SP_TENSOR_DN1, s));
    c->ctx.layer = -1;
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, false, false, sp_weight(c, SP_BLOCK_NORM, -1),
                           sp_gradient(c, SP_BLOCK_NORM, -1), c->fl->out, c->fl->norm,
                           find(c, tensor(c, SP_TENSOR_DN1, c->st->index)), n, part, NULL, dx,
                           released);
    sp_drop(&c->fl->out);
    sp_drop(&c->fl->norm);
}

/* ---- ops of the head ---------------------------------------------------------------------------- */

static enum sp_block_kind table_of(const struct sp_op_ctx *c)
{
    return c->sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
}

/* Rows of the vocabulary that are here. */
static int rows_of(const struct sp_op_ctx *c)
{
    int first, count;

    sp_vocabulary_part(&c->sh->held, stages_of(c), c->st->index, &first, &count);
    return count;
}

static starpu_data_handle_t targets_of(const struct sp_op_ctx *c)
{
    return sp_stage_targets(c->g, c->st)[unit_of(c)];
}

/* If they are few they stay for the backward. */
static starpu_data_handle_t take_logits(struct sp_op_ctx *c, int rows)
{
    size_t n = (size_t)c->sh->rows * (size_t)sp_logits_ld(rows);

    return sp_shape_keeps_logits(c->sh)
               ? sp_pool_get(c->st->local, n, sp_shape_elem(c->sh), "logits")
               : NULL;
}

static void forward(struct sp_op_ctx *c)
{
    starpu_data_handle_t stats =
        sp_pool_get(c->st->boundary, 2 * (size_t)c->sh->rows, sizeof(float), "logit statistics");
    starpu_data_handle_t *logits = &c->st->logits[unit_of(c)];
    int rows = rows_of(c);

    *logits = take_logits(c, rows);
    sp_logit_stats_insert(&c->ctx, c->sh, rows, find(c, input(c)), targets_of(c),
                          sp_stage_weight(c->st, table_of(c), -1), stats, *logits);
    leave(c, tensor(c, SP_TENSOR_STATS, c->st->index), stats);
}

/* The loss counts on the last chunk's stage. */
static void backward(struct sp_op_ctx *c)
{
    const struct sp_layout *lay = &c->g->cfg.plan->layout;
    bool counts = c->st->index == sp_home(lay, 0, sp_globals(lay) - 1).stage;
    starpu_data_handle_t dn = sp_take_boundary(c, c->st, "dn"), stats[lay->stages];
    starpu_data_handle_t *logits = &c->st->logits[unit_of(c)];

    for (int s = 0; s < lay->stages; s++)
        stats[s] = find(c, tensor(c, SP_TENSOR_STATS, s));
    sp_vocabulary_insert(&c->ctx, c->sh, rows_of(c), counts, find(c, input(c)), targets_of(c),
                         sp_stage_weight(c->st, table_of(c), -1),
                         sp_stage_gradient(c->st, table_of(c), -1), lay->stages, stats, *logits, dn,
                         sp_stage_tally(c->g, c->st));
    sp_drop(logits);
    leave(c, tensor(c, SP_TENSOR_DN1, c->st->index), dn);
}

static void run_head(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_op *op = &a->op;
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->cuts[0].shapes[op->slice],
        .ctx = sp_stage_context(g, st, op->pass == SP_F ? 'F' : 'B'),
        .mb = op->mb,
        .slice = op->slice,
    };

    c.ctx.op_index = a->index;
    c.ctx.mb = op->mb;
    c.ctx.layer = -1;
    c.ctx.slice = g->cfg.plan->layout.slices > 1 ? op->slice : -1;
    c.ctx.op = sp_window_open(g->window, g->turn);
    (op->pass == SP_F ? forward : backward)(&c);
    sp_op_close(&c.ctx);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    (a->op.part == SP_HEAD ? run_head : sp_graph_layerwise.run)(g, st, a);
}

/* ---- the embedding's table ------------------------------------------------------------------------ */

void sp_vocabulary_tables(struct sp_op_ctx *c)
{
    const struct sp_shards *s = c->st->shards;

    if (s && s->end_weights.n) {
        c->end_w = s->end_weights.handle;
        c->end_gradient = s->end_gradients.handle;
    }
}

static void begin(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_stage_context(g, st, 'T');

        if (st->shards->end_gradients.n)
            sp_unit_clear(g, &ctx, &st->shards->end_gradients, SP_SHARDS_ENDS);
    }
}

static void end(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        sp_shards_add(st, sp_stage_context(g, st, 'T'), INT_MAX);
    }
}

/* ---- the family ---------------------------------------------------------------------------------- */

static int units_of(const struct sp_graph *g)
{
    return g->cfg.plan->layout.micro_batches * g->cfg.plan->layout.slices;
}

static void discard(struct sp_graph *g)
{
    sp_layerwise_discard(g);
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < units_of(g); i++)
            sp_drop(&g->stages[k].logits[i]);
}

static int create(struct sp_graph *g)
{
    int err = sp_layerwise_create(g);

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        st->logits = calloc((size_t)units_of(g), sizeof(starpu_data_handle_t));
        if (!st->logits)
            return -ENOMEM;
        if (sp_is_end_stage(g->cfg.plan, st->index, false))
            err = sp_shards_create(g, st);
        else
            err = (st->shards = calloc(1, sizeof *st->shards)) ? 0 : -ENOMEM;
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    sp_layerwise_destroy(g);
    for (int k = 0; k < g->place.n_local; k++) {
        free(g->stages[k].logits);
        sp_shards_destroy(&g->stages[k]);
    }
}

const struct sp_graph_family sp_graph_vocabulary = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .end = end,
    .run = run,
    .collective = sp_shards_collective,
    .discard = discard,
};
