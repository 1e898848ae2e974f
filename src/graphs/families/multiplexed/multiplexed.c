/*
 * The subsequence family with multiplexed slices: several stages compute the slices at the bubbles
 * of the pipeline together (policies/families/multiplexed/multiplex.h), each a part of the tokens.
 *
 *   F(mb, stage, part):  [embed | rows from the parts of the stage before]
 *                        { pre  attn  post } per layer
 *   B(mb, stage, part):  [head | rows from the parts of the stage after]
 *                        { post.B attn.B pre.B  w } per layer
 *
 * A stage that computes for another one reads that stage's weights in place, or in another process
 * from a copy. It sums their gradients in buffers of its own, so that the parts need not wait for
 * each other (policies/families/multiplexed/shared_weights.h). The parts of a slice attend together:
 * shared.c.
 *
 * Members of a stage that share tokens have them in turns (sp_shape_stripe), so rows go from a member
 * to the same one of another stage. Attention has each member's heads of all tokens of a part.
 */
#include "graphs/families/family.h"
#include "graphs/families/chunk.h"
#include "graphs/families/multiplexed/multiplexed.h"
#include "graphs/offload/offload.h"
#include "sp_error.h"
#include <stdlib.h>

static int tokens_of(const struct sp_op_ctx *c)
{
    return c->mb * c->cut->n + c->slice;
}

/* ---- rows from stage to stage ------------------------------------------------------------ */

/* Copies the tokens that both parts have. There may be none: parts that share a fraction of a slice
 * need not share a whole token. */
static void copy_rows(struct sp_op_ctx *c, const struct sp_shape *from, struct sp_tensor *source,
                      struct sp_tensor **to)
{
    const struct sp_shape *sh = c->sh;
    int at = (sh->first - from->first) / sh->stride; /* of this part's first token, in the other */
    int begin = at > 0 ? at : 0, end = at + sh->seq < from->seq ? at + sh->seq : from->seq;
    struct sp_rows rows = {.batch = sh->batch,
                           .width = sh->model.hidden,
                           .n = end - begin,
                           .from_len = from->seq,
                           .from_at = begin,
                           .to_len = sh->seq,
                           .to_at = begin - at};

    if (rows.n <= 0)
        return;
    if (!*to)
        *to = sp_take_hidden(c, "rows");
    sp_rows_insert(&c->ctx, sh, &rows, source, *to, begin == at);
}

const struct sp_stored *sp_multiplex_find(struct sp_graph *g, const struct sp_tensor_id *id)
{
    const struct sp_stored *t = NULL;

    for (int k = 0; !t && k < g->place.n_local; k++)
        t = sp_store_find(&g->stages[k].store, id);
    return t;
}

static struct sp_tensor_id id_of(enum sp_tensor_kind kind, int global, int mb, int part)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = (unsigned short)part, .mb = mb, .at = global};
}

/* Collects the rows of the op's tokens from the tensors that its neighbours left: the tensor itself
 * if it has the same tokens, otherwise a new one put together. The op holds it in addition to the
 * stores. */
static struct sp_tensor *gather(struct sp_op_ctx *c, enum sp_tensor_kind kind, int global)
{
    const struct sp_cut *cut = sp_graph_cut(c->g, global);
    struct sp_tensor *whole = NULL;
    int first, last;

    c->ctx.layer = -1;
    sp_multiplexed_overlap(sp_multiplex_layout(c->g), c->global, c->slice, global, &first, &last);
    for (int k = first; k <= last; k++) {
        const struct sp_shape *from = &cut->shapes[k];
        struct sp_tensor_id id = id_of(kind, global, c->mb, k);
        struct sp_tensor *source = sp_multiplex_find(c->g, &id)->piece[0];

        if (from->first == c->sh->first && from->seq == c->sh->seq) {
            sp_pool_hold(source);
            whole = source; /* other parts have none of these tokens */
        } else {
            copy_rows(c, from, source, &whole);
        }
    }
    return whole;
}

static void leave(struct sp_op_ctx *c, enum sp_tensor_kind kind)
{
    struct sp_tensor_id id = id_of(kind, c->global, c->mb, c->slice);

    sp_store_put(&c->st->store, &id, 1, &c->flow, true);
}

/* ---- keys, values and their gradients ----------------------------------------------------- */

/* For ops of the owner: finds the keys and values of left slices that other processes computed. */
static void find_keys(struct sp_op_ctx *c)
{
    for (int k = 0; k < c->slice; k++) {
        struct sp_chunk_activations *fl = sp_multiplexed_activations(c->g, c->global, c->mb, k);
        struct sp_tensor_id id = id_of(SP_TENSOR_KV, c->global, c->mb, k);
        const struct sp_stored *t = fl->layers[0].heads->kv ? NULL : sp_multiplex_find(c->g, &id);

        for (int i = 0; t && i < c->count; i++)
            fl->layers[i].heads->kv = t->piece[i];
    }
}

/* sp_op_ctx.share: adds to the gradients of the keys and values of layer i the sums that arrived
 * from the left slice's owner in another process. */
static void add_gradients(struct sp_op_ctx *c, int i)
{
    struct sp_tensor_id id = id_of(SP_TENSOR_DKV, c->global, c->mb, c->slice);

    for (const struct sp_stored *t = sp_store_find(&c->st->store, &id); t; t = sp_store_next(t))
        sp_sum_insert(&c->ctx, c->sh->dtype, c->fl->layers[i].heads->dkv, t->piece[i], false);
}

/* Puts keys and values of a left slice into the store, for the owner's process; or the gradients
 * that the owner summed. Sending the gradients ends their life and that of the owner's copy of the
 * keys. */
static void make_keys(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    bool keys = id->kind == SP_TENSOR_KV;
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    struct sp_tensor *piece[n];
    struct sp_layer_activations *t =
        sp_multiplexed_activations(g, id->at, id->mb, id->slice)->layers;

    for (int i = 0; i < n; i++) {
        piece[i] = keys ? t[i].heads->kv : t[i].heads->dkv;
        if (!keys)
            t[i].heads->kv = t[i].heads->dkv = NULL;
    }
    sp_store_put(&st->store, id, n, piece, !keys);
}

static struct sp_shared_op *shared_op(struct sp_graph *g, const struct sp_stage *st)
{
    return &sp_multiplex_of(g)->op[st->index - g->place.first_local];
}

static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    switch (id->kind) {
    case SP_TENSOR_KV:
        (id->block ? sp_share_make : make_keys)(g, st, id);
        break;
    case SP_TENSOR_DKV:
        (id->block ? sp_share_fetch : make_keys)(g, st, id);
        break;
    case SP_TENSOR_GRADIENT:
        sp_multiplex_assist_leave(g, st, id);
        break;
    case SP_TENSOR_Q:
    case SP_TENSOR_O:
    case SP_TENSOR_LSE:
    case SP_TENSOR_DO:
        sp_shared_send(shared_op(g, st), id);
        break;
    default:
        break;
    }
}

static void received(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    if (id->kind == SP_TENSOR_KV && id->block)
        sp_share_evict(g, st, id);
}

/* ---- the op --------------------------------------------------------------------------- */

static bool is_forward(const struct sp_op_ctx *c)
{
    return c->ctx.pass == 'F';
}

void sp_multiplex_begin(struct sp_op_ctx *c)
{
    if (is_forward(c) && c->global > 0) {
        c->fl->layers[0].x = gather(c, SP_TENSOR_X, c->global - 1);
    } else if (is_forward(c)) {
        c->fl->layers[0].x = sp_take_hidden(c, "x");
        sp_chunk_embed(c, tokens_of(c), c->fl->layers[0].x);
    } else if (c->global < c->globals - 1) {
        c->flow = gather(c, SP_TENSOR_DX, c->global + 1);
    } else {
        c->flow = sp_take_hidden(c, "dx");
        sp_offload_slot(c, 0); /* this slot fetches the head's input */
        sp_chunk_head_of_output(c, tokens_of(c), c->flow);
    }
}

struct sp_tensor *sp_multiplex_output(struct sp_op_ctx *c, int i)
{
    const char *name = is_forward(c) ? "x" : "dx";

    return i == (is_forward(c) ? c->count - 1 : 0) ? sp_take_boundary(c, c->st, name)
                                                   : sp_take_hidden(c, name);
}

bool sp_multiplex_to_head(const struct sp_op_ctx *c, int i)
{
    return is_forward(c) && i == c->count - 1 && c->global == c->globals - 1;
}

void sp_multiplex_end(struct sp_op_ctx *c)
{
    if (is_forward(c) && c->global == c->globals - 1)
        c->fl->out = c->flow;
    else if (is_forward(c))
        leave(c, SP_TENSOR_X);
    else if (c->global > 0)
        leave(c, SP_TENSOR_DX);
    else
        sp_chunk_embed_gradient(c, tokens_of(c), &c->flow);
}

/* Runs all layers of a steady slice. */
static void run_layers(struct sp_op_ctx *c)
{
    sp_multiplex_begin(c);
    for (int step = 0; step < c->count; step++) {
        int i = sp_chunk_layer(c, step);

        sp_chunk_run_layer(c, i, sp_multiplex_output(c, i), sp_multiplex_to_head(c, i));
    }
    sp_multiplex_end(c);
}

static void open(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a,
                 struct sp_op_ctx *c)
{
    const struct sp_op *op = &a->op;

    *c = sp_op_open(g, st, op, a->index);
    c->fl = sp_multiplexed_activations(g, op->chunk, op->mb, op->slice);
    c->cut = sp_graph_cut(g, op->chunk);
    c->sh = &c->cut->shapes[op->slice];
    c->global = op->chunk;
    c->globals = sp_multiplex_layout(g)->stages;
    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, st->index, op->chunk, &c->first, &c->count);
    if (op->chunk != st->index)
        sp_multiplex_assist_use(c, op->pass == SP_B);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    struct sp_shared_op *op = shared_op(g, st);
    bool apart = sp_pipeline_size(&g->place) > 1;
    void (*share)(struct sp_op_ctx * c, int i) = a->op.pass == SP_B && apart ? add_gradients : NULL;

    if (a->index < 0) {
        (a->tensor.kind == SP_TENSOR_DKV ? sp_share_add : sp_multiplex_assist_add)(g, st,
                                                                                   &a->tensor);
        return;
    }
    if (a->op_part == 0)
        open(g, st, a, &op->c);
    if (a->op_part == 0 && apart && op->c.global == st->index)
        find_keys(&op->c);
    if (g->cfg.plan->family->shared->keeps_attention(sp_multiplex_layout(g), &a->op)) {
        sp_shared_run(op, a->op_part, share);
    } else {
        op->c.share = op->c.fl->layers[0].evicted && a->op.pass == SP_B ? sp_share_add_layer : NULL;
        run_layers(&op->c);
    }
    if (a->op_part == a->op_parts - 1)
        sp_op_close(&op->c.ctx);
}

/* ---- the family ------------------------------------------------------------------------ */

static void destroy(struct sp_graph *g)
{
    struct sp_multiplex *m = g->own;

    if (!m)
        return;
    sp_multiplex_assist_destroy(g);
    sp_activations_free(m->activations);
    free(m->shares);
    free(m->op);
    free(m);
    g->own = NULL;
}

static int create(struct sp_graph *g)
{
    int stages = sp_multiplex_layout(g)->stages;
    struct sp_multiplex *m = g->own = calloc(1, sizeof *m);

    if (!m)
        return -ENOMEM;
    /* chunks are global stages, whichever stage computes them */
    m->activations = sp_activations_new(g, 0, stages, sp_activations_count(g->cfg.plan) / stages);
    m->op = calloc((size_t)g->place.n_local, sizeof *m->op);
    if (g->cfg.evictions)
        m->shares = calloc((size_t)g->place.n_local * (size_t)sp_activations_count(g->cfg.plan),
                           sizeof *m->shares);
    return m->activations && m->op && (m->shares || !g->cfg.evictions)
               ? sp_multiplex_assist_create(g)
               : -ENOMEM;
}

const struct sp_graph_family sp_graph_multiplexed = {
    .create = create,
    .destroy = destroy,
    .run = run,
    .make = make,
    .received = received,
    .overwrites = true,
};
