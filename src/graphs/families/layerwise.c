/*
 * The layerwise families: a stage has a chunk of consecutive layers, and activations travel.
 *
 *   F(mb, chunk):  [embed]  { pre  attn  post } for each layer                   -> next stage
 *   B(mb, chunk):  [head]   { (recompute)  post.B attn.B pre.B  weight gradients } -> stage before
 *   W(mb, chunk):  the weight gradients, if the schedule separates them from B
 *
 * An op is expanded layer by layer, so that two ops that overlap alternate: the messages of one
 * travel while the other computes. --recompute sets what a layer keeps from F to B; everything else
 * is freed at its last use. Tensors between global stages lie in the stores of stages, where the
 * actions of the plan send, receive and free them (policies/families/layerwise/actions.c).
 *
 * A chunk without layers passes on the tensor that it received. Its op still has a task, which does
 * nothing: every op has its place in the worker's order, and a time.
 */
#include "graphs/families/layerwise.h"
#include "graphs/families/vocabulary.h"
#include "policies/lowering/parking.h"
#include "graphs/offload/offload.h"
#include "graphs/turns.h"
#include "graphs/weights/zero.h"
#include "sp_error.h"
#include <string.h>

/* Names a tensor between global stages by the stage that leaves it. */
static struct sp_tensor_id passing(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int global)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = (unsigned short)c->slice, .mb = c->mb, .at = global};
}

/* Finds a tensor that arrived; the op holds it in addition to the store. */
static struct sp_tensor *arrived(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int global)
{
    struct sp_tensor_id id = passing(c, kind, global);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    SP_NEED(t, "stage %d: no input of global stage %d", c->st->index, c->global);
    sp_pool_hold(t->piece[0]);
    return t->piece[0];
}

static void leave(struct sp_op_ctx *c, enum sp_tensor_kind kind)
{
    struct sp_tensor_id id = passing(c, kind, c->global);

    sp_store_put(&c->st->store, &id, 1, &c->flow, true);
    c->flow = NULL;
}

/* Takes a buffer for a neighbouring global stage, from the pool of the stage that reads it if that
 * is in this process. */
static struct sp_tensor *buffer_for(struct sp_op_ctx *c, int global, const char *name)
{
    bool inside = global >= 0 && global < c->globals;
    struct sp_stage *reader =
        inside
            ? sp_graph_stage(c->g, sp_chunk_owner(&c->g->cfg.plan->layout, c->pipe, global).stage)
            : NULL;

    return sp_take_boundary(c, reader ? reader : c->st, name);
}

/* ---- activations that another stage keeps meanwhile ------------------------------------------- */

/* The places of what layer i keeps, in the order of enum sp_stash_tensor. */
static void kept_by_layer(const struct sp_op_ctx *c, int i,
                          struct sp_tensor **place[SP_STASH_TENSORS])
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_tensor **const all[SP_STASH_TENSORS] = {
        [SP_STASH_X] = &t->x,       [SP_STASH_PRE] = &t->pre, [SP_STASH_Q] = &t->own.q,
        [SP_STASH_KV] = &t->own.kv, [SP_STASH_O] = &t->own.o, [SP_STASH_LSE] = &t->own.lse,
        [SP_STASH_POST] = &t->post};

    memcpy(place, all, sizeof all);
}

/* Moves what is parked of the op's chunk into the store (F), or out of it (B), with a task a layer
 * that counts it. */
static void move_parked(struct sp_op_ctx *c, const struct sp_parked *parked,
                        struct sp_tensor **piece)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    bool leaves = c->ctx.pass == 'F';
    int64_t bytes[SP_STASH_TENSORS], sum;
    int n = 0;

    for (int i = 0; i < c->count; i++) {
        struct sp_tensor **place[SP_STASH_TENSORS];
        int before = n;

        kept_by_layer(c, i, place);
        sp_parked_layer(plan->parking, parked, c->sh,
                        sp_layer_recompute(plan, plan->parking->recompute, c->first + i), i, bytes);
        sum = 0;
        for (int t = 0; t < SP_STASH_TENSORS; t++) {
            if (!bytes[t])
                continue;
            if (leaves)
                piece[n] = *place[t];
            *place[t] = leaves ? NULL : piece[n];
            SP_NEED(piece[n] && (int64_t)sp_tensor_size(piece[n]) == bytes[t],
                    "internal: starpipe: layer %d keeps other tensors than planned", c->first + i);
            sum += bytes[t];
            n++;
        }
        c->ctx.layer = c->first + i;
        if (n > before)
            sp_hold_insert(&c->ctx, c->sh, n - before, piece + before, leaves ? -sum : sum);
    }
}

/* If activations of the op are parked: leaves them to be sent, or takes them back. */
static void park(struct sp_op_ctx *c)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    const struct sp_parked *parked = sp_parked_at(plan->parking, c->st->index, c->ctx.op_index);
    struct sp_tensor_id id = {
        .kind = SP_TENSOR_STASH, .block = SP_CHUNK, .mb = c->mb, .at = c->global};
    const struct sp_stored *back;

    if (!parked)
        return;
    if (c->ctx.pass == 'F') {
        int n = sp_tensor_pieces(plan, &c->g->shape, &id);
        struct sp_tensor *piece[n];

        move_parked(c, parked, piece);
        sp_store_put(&c->st->store, &id, n, piece, true);
        return;
    }
    back = sp_store_find(&c->st->store, &id);
    SP_NEED(back, "stage %d: activations of global stage %d did not return", c->st->index,
            c->global);
    for (int i = 0; i < back->n; i++)
        sp_pool_hold(back->piece[i]);
    move_parked(c, parked, back->piece);
    sp_store_drop(&c->st->store, &id);
}

/* ---- forward -------------------------------------------------------------------------- */

static void forward_begin(struct sp_op_ctx *c)
{
    struct sp_tensor *x;

    if (c->global > 0) {
        x = arrived(c, SP_TENSOR_X, c->global - 1);
    } else {
        x = c->count ? sp_take_boundary(c, c->st, "x") : buffer_for(c, 1, "x");
        sp_chunk_embed(c, sp_op_unit(c), x);
    }
    if (c->count)
        c->fl->layers[0].x = x;
    else
        c->flow = x;
}

bool sp_layerwise_to_head(const struct sp_op_ctx *c, int i)
{
    return c->ctx.pass == 'F' && i == c->count - 1 && c->global == c->globals - 1;
}

struct sp_tensor *sp_layerwise_output(struct sp_op_ctx *c, int i)
{
    bool forward = c->ctx.pass == 'F';
    int way = forward ? 1 : -1, last = forward ? c->count - 1 : 0;
    const char *name = forward ? "x" : "dx";

    if (i == last)
        return buffer_for(c, c->global + way, name);
    return forward ? sp_take_hidden(c, name) : sp_take_hidden_room(c, name);
}

static void forward_end(struct sp_op_ctx *c)
{
    bool last = c->global == c->globals - 1;

    if (!c->count && c->global > 0)
        sp_hold_insert(&c->ctx, c->sh, 1, &c->flow, last ? (int64_t)sp_tensor_size(c->flow) : 0);
    if (!last) {
        leave(c, SP_TENSOR_X);
        park(c);
        return;
    }
    c->fl->out = c->flow;
    if (sp_graph_shares_vocabulary(c->g))
        sp_vocabulary_input(c, c->fl->out, &c->fl->norm);
}

/* ---- backward ------------------------------------------------------------------------- */

static void backward_begin(struct sp_op_ctx *c)
{
    park(c);
    if (c->global < c->globals - 1) {
        c->flow = arrived(c, SP_TENSOR_DX, c->global + 1);
    } else {
        c->flow = c->count ? sp_take_boundary(c, c->st, "dx") : buffer_for(c, c->global - 1, "dx");
        sp_offload_slot(c, 0); /* this slot fetches the head's input */
        if (sp_graph_shares_vocabulary(c->g)) {
            sp_vocabulary_gradient(c, c->fl->out, &c->fl->norm, c->flow,
                                   (int64_t)sp_tensor_size(c->fl->out));
            sp_pool_drop(&c->fl->out);
        } else {
            sp_chunk_head_of_output(c, sp_op_unit(c), c->flow);
        }
    }
}

static void backward_end(struct sp_op_ctx *c)
{
    bool last = c->global == c->globals - 1, embeds = c->global == 0 && !c->split;

    if (!c->count && !last && !embeds)
        sp_hold_insert(&c->ctx, c->sh, 1, &c->flow, 0);
    if (c->global > 0) {
        leave(c, SP_TENSOR_DX);
    } else {
        c->fl->grad = c->flow;
        if (!c->split)
            sp_chunk_embed_gradient(c, sp_op_unit(c), &c->fl->grad);
    }
}

static void chunk_wgrad(struct sp_op_ctx *c)
{
    sp_chunk_wgrad(c);
    if (c->global == 0)
        sp_chunk_embed_gradient(c, sp_op_unit(c), &c->fl->grad);
    else if (!c->count)
        sp_hold_insert(&c->ctx, c->sh, 0, NULL, 0);
}

/* ---- the op --------------------------------------------------------------------------- */

void sp_layerwise_open(struct sp_graph *g, struct sp_stage *st, int index, struct sp_op_ctx *c)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &plan->programs[st->index].ops[index];

    *c = sp_op_open(g, st, op, index);
    c->fl = &st->activations[sp_activations_index(plan, op->chunk, op->mb, op->slice)];
    c->pipe = sp_pipe_of_mb(&plan->layout, op->mb);
    c->global = sp_global_stage(&plan->layout, st->index, op->chunk);
    c->globals = sp_globals(&plan->layout);
    c->split = op->pass == SP_B && !sp_op_releases(plan, st->index, op);
    sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &c->first, &c->count);
    if (sp_graph_shares_vocabulary(c->g))
        sp_vocabulary_tables(c);
    if (plan->family->facts.stashes)
        sp_stashing_use(c);
}

void sp_layerwise_begin(struct sp_op_ctx *c)
{
    (c->ctx.pass == 'F' ? forward_begin : backward_begin)(c);
}

void sp_layerwise_end(struct sp_op_ctx *c)
{
    (c->ctx.pass == 'F' ? forward_end : backward_end)(c);
}

static void run_layer(struct sp_op_ctx *c, int step)
{
    int i = sp_chunk_layer(c, step);

    sp_chunk_run_layer(c, i, sp_layerwise_output(c, i), sp_layerwise_to_head(c, i));
}

/* Expands an op that is not a W. */
static void expand(struct sp_op_ctx *c)
{
    sp_layerwise_begin(c);
    for (int step = 0; step < c->count; step++) {
        run_layer(c, step);
        if (c->turns)
            sp_turns_layer(c);
    }
    sp_layerwise_end(c);
}

/* Alternates the layers of a forward of one micro-batch and a backward of another, or in a group
 * what comes between two exchanges. */
static void overlap(struct sp_op_ctx *f, struct sp_op_ctx *b)
{
    if (f->sh->tensor > 1 || f->sh->context > 1) {
        sp_turns_run(f, b, expand);
        return;
    }
    sp_layerwise_begin(f);
    sp_layerwise_begin(b);
    for (int step = 0; step < f->count || step < b->count; step++) {
        if (step < f->count)
            run_layer(f, step);
        if (step < b->count)
            run_layer(b, step);
    }
    sp_layerwise_end(f);
    sp_layerwise_end(b);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_op_ctx c, other;

    sp_layerwise_open(g, st, a->index, &c);
    if (a->op.overlap) {
        sp_layerwise_open(g, st, a->index + 1, &other);
        overlap(a->op.pass == SP_F ? &c : &other, a->op.pass == SP_F ? &other : &c);
        sp_op_close(&other.ctx);
    } else if (a->op.pass == SP_W) {
        chunk_wgrad(&c);
    } else {
        expand(&c);
    }
    sp_op_close(&c.ctx);
}

/* ---- the family ------------------------------------------------------------------------ */

void sp_layerwise_discard(struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;

    for (int k = 0; k < g->place.n_local; k++)
        sp_activations_drop(g, &g->stages[k], lay->chunks, lay->micro_batches * lay->slices);
    sp_zero_discard(g);
}

int sp_layerwise_create(struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++)
        err =
            sp_activations_create(g, &g->stages[k], lay->chunks, lay->micro_batches * lay->slices);
    return err;
}

void sp_layerwise_destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_activations_destroy(&g->stages[k]);
}

const struct sp_graph_family sp_graph_layerwise = {
    .create = sp_layerwise_create,
    .destroy = sp_layerwise_destroy,
    .run = run,
    .discard = sp_layerwise_discard,
    .overwrites = true,
};
