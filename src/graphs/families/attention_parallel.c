/*
 * The attention-parallel family (HelixPipe, sections 4.2 and 4.4): parameter blocks stay on their
 * stages; attention of a layer runs on a stage of its own for every micro-batch.
 *
 *   P(mb, j):  [embed] | post of layer j-1, norm of layer j [, QKV]
 *              -- x, n1 [W] | q kv  --> A(mb, j)
 *   A(mb, l):  [QKV] attention
 *              -- x, o              --> P(mb, l+1)
 *
 * and back: dr, do to attention; dr, dn1 [dW] | dq dkv to the block. The residual x travels through
 * attention's stage, as published. If the QKV weights are shipped, neither q, k, v nor their
 * gradients cross. policies/families/attention_parallel/attention_parallel.h lists the tensors kept
 * between forward and backward.
 */
#include "graphs/families/family.h"
#include "graphs/families/part.h"
#include "graphs/families/vocabulary.h"
#include "graphs/offload/offload.h"
#include "graphs/weights/zero.h"
#include <errno.h>
#include <stdlib.h>

/* ---- the op ----------------------------------------------------------------------------- */

/* Opens an op; slices[0 .. its own] are for its activations. */
static void open_op(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a,
                    struct sp_chunk_activations *slices, struct sp_part_op *c)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &a->op;
    struct sp_part_activations *t;

    *c = (struct sp_part_op){
        .op = sp_op_open(g, st, op, a->index),
        .k = op->chunk,
        .ships = sp_shipment(plan, &g->shape),
        .each = sp_ships_each_time(plan),
        .keeps = sp_stash_keeps(g->cfg.recompute, SP_STASH_PRE),
        .keeps_output = sp_stash_keeps(g->cfg.recompute, SP_STASH_O),
        .keep_outputs = g->cfg.recompute == SP_RECOMPUTE_NONE,
        .stash = sp_stash_of_op(plan, &g->shape, g->cfg.recompute, g->cfg.every, st->index, op),
    };
    c->op.fl = &slices[op->slice];
    c->op.count = 1;
    t = sp_part_activations_of(&c->op, c->k);
    for (int j = 0; op->part == SP_ATTN && j <= op->slice; j++)
        slices[j] = (struct sp_chunk_activations){.layers = &t[j - op->slice].attn};
    if (op->part == SP_BLOCK)
        *c->op.fl = (struct sp_chunk_activations){.layers = &t->block};
    if (sp_graph_shares_vocabulary(g))
        sp_vocabulary_tables(&c->op);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_chunk_activations slices[SP_MAX_SLICES];
    struct sp_part_op c;

    if (a->index < 0) {
        (a->tensor.kind == SP_TENSOR_WOUT ? sp_part_make : sp_part_add)(g, st, &a->tensor);
        return;
    }
    open_op(g, st, a, slices, &c);
    sp_part_begin_shards(&c);
    sp_offload_slot(&c.op, 0);
    sp_offload_gate(&c.op, 0);
    (a->op.part == SP_ATTN ? sp_part_attention : sp_part_block)(&c, a->op.pass);
    if (a->op.pass == SP_F)
        sp_offload_keep(&c.op, 0);
    sp_part_end_shards(&c);
    sp_op_close(&c.op.ctx);
}

/* ---- the family ------------------------------------------------------------------------- */

/* The number of struct sp_part_activations: one per slice and block of every micro-batch. */
static size_t activations_count(const struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;

    return (size_t)lay->micro_batches * (size_t)(lay->layers + 1) * (size_t)lay->slices;
}

static int create(struct sp_graph *g)
{
    size_t n = activations_count(g), parts = (size_t)sp_activations_parts(&g->shape);
    struct sp_part_activations *all = g->own = calloc(n, sizeof *all);
    struct sp_heads *heads = parts ? calloc(2 * n * parts, sizeof *heads) : NULL;

    if (!all || (parts && !heads)) {
        free(heads);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        sp_activations_give(&g->shape, &all[i].attn, heads ? heads + 2 * i * parts : NULL);
        sp_activations_give(&g->shape, &all[i].block, heads ? heads + (2 * i + 1) * parts : NULL);
    }
    return 0;
}

/* Drops all that the forwards of a slice left of block k and of attention of layer k. */
static void drop_activations(struct sp_part_activations *t, int parts)
{
    sp_pool_drop(&t->norm);
    sp_layer_drop(&t->attn, parts);
    sp_layer_drop(&t->block, parts);
}

static void discard(struct sp_graph *g)
{
    struct sp_part_activations *all = g->own;

    for (size_t i = 0; i < activations_count(g); i++)
        drop_activations(&all[i], sp_activations_parts(&g->shape));
    for (int k = 0; k < g->place.n_local; k++)
        sp_stage_forget(g, &g->stages[k]);
    sp_zero_discard(g);
}

static void destroy(struct sp_graph *g)
{
    struct sp_part_activations *all = g->own;

    if (all)
        free(sp_activations_first(&all[0].attn));
    free(all);
}

const struct sp_graph_family sp_graph_attention_parallel = {
    .create = create,
    .destroy = destroy,
    .run = run,
    .make = sp_part_make,
    .discard = discard,
};
