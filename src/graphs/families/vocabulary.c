/*
 * Families whose stages split the vocabulary; `last` is the last chunk, or the last block if parts
 * of layers are ops:
 *
 *   F(mb, last):   ... layers   n = norm(x)                           -> all stages
 *   L(mb):         Z = n E_s^T, statistics of the rows that are here  -> all stages
 *   bL(mb):        lse of all; dZ, part of dn, dE_s +=                -> the stage of `last`
 *   B(mb, last):   dn = sum of all parts, dx; layers ...
 *
 * The rows of the embedding's table lie on all stages. The stage that embeds has the gathered table
 * from before its first op until the scatter of its gradient after the last one, like embedding and
 * head in the sharded family.
 */
#include "graphs/families/vocabulary.h"
#include "graphs/layer/attention.h"
#include "graphs/families/family.h"
#include "graphs/families/shards.h"
#include "graphs/tensor/ends.h"
#include "graphs/tokens.h"
#include "policies/families/ownership.h"
#include "policies/families/sharded/shards.h"
#include "policies/families/vocabulary/vocabulary.h"
#include "sp_error.h"
#include <limits.h>
#include <stdlib.h>

static int stages_of(const struct sp_op_ctx *c)
{
    return c->g->cfg.plan->layout.stages;
}

/* Kept from the forward of the head to its backward, per share of the tokens: the head's input, and
 * the logits if they are few (else NULL). */
struct head_activations {
    struct sp_tensor **n, **logits; /* [shares] */
};

static struct head_activations *activations_of(const struct sp_stage *st, int unit)
{
    struct head_activations *all = st->own; /* [micro_batches][slices] */

    return &all[unit];
}

/* ---- tensors --------------------------------------------------------------------------------- */

static struct sp_tensor_id tensor(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int at)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = (unsigned short)c->slice, .mb = c->mb, .at = at};
}

static struct sp_tensor_id input(const struct sp_op_ctx *c)
{
    return tensor(c, SP_TENSOR_HEAD, -1);
}

static struct sp_tensor *find_piece(const struct sp_op_ctx *c, struct sp_tensor_id id, int piece)
{
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    SP_NEED(t, "stage %d: no %s of stage %d for the head", c->st->index,
            sp_tensor_name((enum sp_tensor_kind)id.kind), id.at);
    return t->piece[piece];
}

static struct sp_tensor *find(const struct sp_op_ctx *c, struct sp_tensor_id id)
{
    return find_piece(c, id, 0);
}

static void leave(struct sp_op_ctx *c, struct sp_tensor_id id, struct sp_tensor *handle)
{
    sp_store_put(&c->st->store, &id, 1, &handle, true);
}

/* ---- in the last op before the head ---------------------------------------------------------- */

void sp_vocabulary_input(struct sp_op_ctx *c, struct sp_tensor *x, struct sp_tensor **stats)
{
    struct sp_tensor *n = sp_take_boundary(c, c->st, "n");

    c->ctx.layer = -1;
    *stats = sp_pool_get(c->st->local, sp_shape_pre_saved(c->sh, false), sp_shape_elem(c->sh),
                         "statistics");
    sp_norm_fwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = x, .saved = *stats}, n,
                       sp_stage_weight(c->st, SP_BLOCK_NORM, -1), 0);
    leave(c, input(c), n);
}

void sp_vocabulary_gradient(struct sp_op_ctx *c, struct sp_tensor *x, struct sp_tensor **stats,
                            struct sp_tensor *dx, int64_t released)
{
    int stages = stages_of(c), n = 0;
    struct sp_tensor *part[stages];

    for (int s = 0; s < stages; s++)
        if (s != c->st->index)
            part[n++] = find(c, tensor(c, SP_TENSOR_DHEAD, s));
    c->ctx.layer = -1;
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, false, false, sp_stage_weight(c->st, SP_BLOCK_NORM, -1),
                           sp_stage_gradient(c->st, SP_BLOCK_NORM, -1), x, *stats,
                           find(c, tensor(c, SP_TENSOR_DHEAD, c->st->index)), n, part, NULL, dx,
                           released);
    sp_pool_drop(stats);
}

/* ---- ops of the head ---------------------------------------------------------------------------
 *
 * With tensor parallelism each member has a part of the stage's rows: it needs the inputs of all
 * shares of the tokens, and adds to the gradients of all. Other stages get the statistics of a
 * stage as one part.
 */

/* The number of rows of the vocabulary on this stage, among those that this member has on all
 * stages. */
static int rows_of(const struct sp_op_ctx *c)
{
    int p = stages_of(c), each = sp_vocabulary_rows(&c->sh->held, p), first, count;

    sp_vocabulary_part(&c->g->cfg.params->model, c->sh->tensor, sp_tensor_member(c->g), &first,
                       &count);
    count -= c->st->index * each;
    return count < each ? count : each;
}

static const struct sp_shape *share_of(const struct sp_op_ctx *c, int j)
{
    return c->sh->tensor > 1 ? sp_op_share(c, j) : c->sh;
}

static struct sp_tensor *targets_of(const struct sp_op_ctx *c, int j)
{
    return sp_stage_targets(c->g, c->st)[sp_op_unit(c) * sp_tensor_shares(c) + j];
}

static struct sp_tensor *take_stats(struct sp_op_ctx *c)
{
    return sp_pool_get(c->st->boundary, 2 * (size_t)c->sh->rows, sizeof(float), "logit statistics");
}

/* Merges the statistics that all members have of a share into one part. */
static struct sp_tensor *merge(struct sp_op_ctx *c, int j, struct sp_tensor *own)
{
    int t = c->sh->tensor, me = sp_tensor_member(c->g);
    struct sp_tensor *of[t], *merged;

    if (t == 1)
        return own;
    of[me] = own;
    sp_tensor_share_stats(c, of);
    merged = take_stats(c);
    c->ctx.exchanged = true;
    sp_logit_merge_insert(&c->ctx, share_of(c, j), t, of, merged);
    c->ctx.exchanged = false;
    for (int m = 0; m < t; m++)
        sp_pool_put(of[m]);
    return merged;
}

static void forward(struct sp_op_ctx *c)
{
    struct head_activations *fl = activations_of(c->st, sp_op_unit(c));
    struct sp_tensor_id id = tensor(c, SP_TENSOR_STATS, c->st->index);
    int rows = rows_of(c), n = sp_tensor_shares(c);
    struct sp_tensor *stats[n];
    struct sp_shares inputs;

    sp_tensor_gather(c, SP_TENSOR_HEAD, find(c, input(c)), &inputs);
    for (int k = 0; k < n; k++) {
        int j = sp_tensor_arrival(c, k);

        fl->n[j] = inputs.at[j];
        fl->logits[j] = sp_tensor_logits(c, rows);
        stats[j] = take_stats(c);
        c->ctx.exchanged = j != sp_tensor_share(c);
        sp_logit_stats_insert(&c->ctx, share_of(c, j), rows, fl->n[j], targets_of(c, j),
                              sp_stage_weight(c->st, sp_head_table(&c->sh->model), -1), stats[j],
                              fl->logits[j]);
    }
    c->ctx.exchanged = false;
    for (int j = 0; j < n; j++)
        stats[j] = merge(c, j, stats[j]);
    sp_store_put(&c->st->store, &id, n, stats, true);
}

/* True if the loss of share j counts here: on the stage of the last op, once per share. */
static bool counts(const struct sp_op_ctx *c, int j)
{
    return c->st->index == sp_vocabulary_root(&c->g->cfg.plan->layout) && sp_tensor_completes(c, j);
}

static void backward(struct sp_op_ctx *c)
{
    struct head_activations *fl = activations_of(c->st, sp_op_unit(c));
    int p = stages_of(c), rows = rows_of(c);
    struct sp_shares dn = {.n = sp_tensor_shares(c)};
    struct sp_tensor *stats[p];

    for (int k = 0; k < dn.n; k++) {
        int j = sp_tensor_departure(c, k);

        for (int s = 0; s < p; s++)
            stats[s] = find_piece(c, tensor(c, SP_TENSOR_STATS, s), j);
        dn.at[j] = sp_take_boundary(c, c->st, "dn");
        c->ctx.exchanged = j != sp_tensor_share(c);
        sp_vocabulary_insert(&c->ctx, share_of(c, j), rows, counts(c, j), fl->n[j],
                             targets_of(c, j),
                             sp_stage_weight(c->st, sp_head_table(&c->sh->model), -1),
                             sp_stage_gradient(c->st, sp_head_table(&c->sh->model), -1), p, stats,
                             fl->logits[j], dn.at[j], sp_stage_tally(c->g, c->st));
        sp_pool_drop(&fl->n[j]);
        sp_pool_drop(&fl->logits[j]);
    }
    if (c->sh->tensor > 1)
        sp_tensor_reduce(c, SP_TENSOR_DHEAD, &dn);
    c->ctx.exchanged = true;
    if (dn.n > 1)
        sp_partial_sum_insert(&c->ctx, c->sh, dn.at[0], dn.n - 1, dn.at + 1);
    c->ctx.exchanged = false;
    sp_pool_hold(dn.at[0]);
    leave(c, tensor(c, SP_TENSOR_DHEAD, c->st->index), dn.at[0]);
    sp_tensor_drop(&dn);
}

static const struct sp_graph_family *base_of(const struct sp_graph *g)
{
    return sp_graph_family_of(sp_vocabulary_base(&g->cfg.plan->layout));
}

static void run_head(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_op_ctx c = sp_op_open(g, st, &a->op, a->index);

    c.ctx.layer = -1;
    (a->op.pass == SP_F ? forward : backward)(&c);
    sp_op_close(&c.ctx);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    (a->op.part == SP_HEAD ? run_head : base_of(g)->run)(g, st, a);
}

/* ---- the embedding's table ------------------------------------------------------------------- */

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

/* Lets the base family make the tensors that it sends. */
static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    if (base_of(g)->make)
        base_of(g)->make(g, st, id);
}

/* ---- the family ------------------------------------------------------------------------------ */

static int units_of(const struct sp_graph *g)
{
    return g->cfg.plan->layout.micro_batches * g->cfg.plan->layout.slices;
}

static void discard(struct sp_graph *g)
{
    base_of(g)->discard(g);
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < units_of(g); i++)
            for (int j = 0; j < sp_shape_shares(&g->shape); j++) {
                sp_pool_drop(&activations_of(&g->stages[k], i)->n[j]);
                sp_pool_drop(&activations_of(&g->stages[k], i)->logits[j]);
            }
}

static int create_heads(struct sp_graph *g, struct sp_stage *st)
{
    size_t units = (size_t)units_of(g), each = (size_t)sp_shape_shares(&g->shape);
    struct sp_tensor **handles = calloc(2 * units * each, sizeof(struct sp_tensor *));
    struct head_activations *all = st->own = calloc(units, sizeof *all);

    if (!all || !handles) {
        free(handles);
        return -ENOMEM;
    }
    for (size_t i = 0; i < units; i++)
        all[i] = (struct head_activations){handles + 2 * i * each, handles + (2 * i + 1) * each};
    return 0;
}

static int create(struct sp_graph *g)
{
    int err = base_of(g)->create(g);

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        err = create_heads(g, st);
        if (err)
            return err;
        if (st->index == sp_vocabulary_first(&g->cfg.plan->layout))
            err = sp_shards_create(g, st);
        else
            err = (st->shards = calloc(1, sizeof *st->shards)) ? 0 : -ENOMEM;
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    base_of(g)->destroy(g);
    for (int k = 0; k < g->place.n_local; k++) {
        if (g->stages[k].own)
            free(activations_of(&g->stages[k], 0)->n);
        free(g->stages[k].own);
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
    .make = make,
    .discard = discard,
    .overwrites = true,
};
