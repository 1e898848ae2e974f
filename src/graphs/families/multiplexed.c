/*
 * The subsequence family with multiplexed slices: slices that lie beside the bubbles of the pipeline are
 * computed by several stages together (policies/families/multiplexed/multiplex.h), each a part of the tokens.
 *
 *   F(mb, stage, part):  [embed | rows from the parts of the stage before]  { pre  attn  post } per layer
 *   B(mb, stage, part):  [head | rows from the parts of the stage after]    { post.B attn.B pre.B  w }
 *
 * A stage that computes for another one reads its weights, and the keys and values of all parts before
 * its own, where they are; of those in another process it has copies. It adds up gradients of these weights by
 * itself, so that the parts need not wait for each other; the owner gets the sums at the end of a step, in
 * the order of the stages.
 */
#include "graphs/families/family.h"
#include "graphs/families/chunk.h"
#include "graphs/families/multiplexed.h"
#include <stdlib.h>

static int tokens_of(const struct sp_op_ctx *c)
{
    return c->mb * c->cut->n + c->slice;
}

/* ---- rows from stage to stage ------------------------------------------------------------ */

/* Copies the tokens that both have. There may be none: parts that share a fraction of a slice need not
 * share a whole token. */
static void copy_rows(struct sp_op_ctx *c, const struct sp_shape *from, starpu_data_handle_t source,
                      starpu_data_handle_t *to)
{
    const struct sp_shape *sh = c->sh;
    int begin = from->first > sh->first ? from->first : sh->first;
    int end = from->first + from->seq < sh->first + sh->seq ? from->first + from->seq
                                                            : sh->first + sh->seq;
    struct sp_rows rows = {.batch = sh->batch,
                           .width = sh->model.hidden,
                           .n = end - begin,
                           .from_len = from->seq,
                           .from_at = begin - from->first,
                           .to_len = sh->seq,
                           .to_at = begin - sh->first};

    if (rows.n <= 0)
        return;
    if (!*to)
        *to = sp_take_hidden(c, "rows");
    sp_rows_insert(&c->ctx, sh, &rows, source, *to, begin == sh->first);
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

/* What the op's tokens have of the tensors that its neighbours left: as it is if the cut is the same,
 * otherwise put together. The op's own, beside the stores. */
static starpu_data_handle_t gather(struct sp_op_ctx *c, enum sp_tensor_kind kind, int global)
{
    const struct sp_cut *cut = sp_graph_cut(c->g, global);
    starpu_data_handle_t whole = NULL;
    int first, last;

    c->ctx.layer = -1;
    sp_multiplexed_overlap(sp_multiplex_layout(c->g), c->global, c->slice, global, &first, &last);
    for (int k = first; k <= last; k++) {
        const struct sp_shape *from = &cut->shapes[k];
        struct sp_tensor_id id = id_of(kind, global, c->mb, k);
        starpu_data_handle_t source = sp_multiplex_find(c->g, &id)->piece[0];

        if (from->first == c->sh->first && from->seq == c->sh->seq) {
            sp_pool_hold(source);
            whole = source; /* others, if there are any, have none of these tokens */
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

/* Keys and values of parts before this one that were computed in other processes. */
static void find_keys(struct sp_op_ctx *c)
{
    for (int k = 0; k < c->slice; k++) {
        struct sp_chunk_flight *fl = sp_multiplex_flight(c->g, c->global, c->mb, k);
        struct sp_tensor_id id = id_of(SP_TENSOR_KV, c->global, c->mb, k);
        const struct sp_stored *t = fl->layers[0].kv ? NULL : sp_multiplex_find(c->g, &id);

        for (int i = 0; t && i < c->count; i++)
            fl->layers[i].kv = t->piece[i];
    }
}

/* sp_op_ctx.share: to the gradients of the keys and values of layer i, those that other processes summed up
 * of their parts are added, process by process. */
static void add_gradients(struct sp_op_ctx *c, int i)
{
    struct sp_tensor_id id = id_of(SP_TENSOR_DKV, c->global, c->mb, c->slice);

    for (const struct sp_stored *t = sp_store_find(&c->st->store, &id); t; t = sp_store_next(t))
        sp_sum_insert(&c->ctx, c->sh->dtype, c->fl->layers[i].dkv, t->piece[i], false);
}

/* What an op of this process left in its flight for other processes to read; or what its parts summed up for
 * an op of another, with whose backward that ends, as do the copies of its keys and values. */
static void make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    bool keys = id->kind == SP_TENSOR_KV;
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    starpu_data_handle_t piece[n];
    struct sp_layer_flight *t;

    if (!keys && id->kind != SP_TENSOR_DKV)
        return;
    t = sp_multiplex_flight(g, id->at, id->mb, id->slice)->layers;
    for (int i = 0; i < n; i++) {
        piece[i] = keys ? t[i].kv : t[i].dkv;
        if (!keys)
            t[i].kv = t[i].dkv = NULL;
    }
    sp_store_put(&st->store, id, n, piece, !keys);
}

/* ---- the op --------------------------------------------------------------------------- */

static void forward(struct sp_op_ctx *c)
{
    bool last = c->global == c->globals - 1;

    if (c->global > 0) {
        c->fl->layers[0].x = gather(c, SP_TENSOR_X, c->global - 1);
    } else {
        c->fl->layers[0].x = sp_take_hidden(c, "x");
        sp_chunk_embed(c, tokens_of(c), c->fl->layers[0].x);
    }
    for (int i = 0; i < c->count; i++) {
        bool top = i == c->count - 1;

        c->flow = top ? sp_take_boundary(c, c->st, "x") : sp_take_hidden(c, "x");
        sp_chunk_forward_layer(c, i, c->flow, top && last);
    }
    if (last)
        c->fl->out = c->flow;
    else
        leave(c, SP_TENSOR_X);
}

static void backward(struct sp_op_ctx *c)
{
    if (c->global < c->globals - 1) {
        c->flow = gather(c, SP_TENSOR_DX, c->global + 1);
    } else {
        c->flow = sp_take_hidden(c, "dx");
        sp_chunk_head(c, tokens_of(c), c->flow);
    }
    for (int i = c->count - 1; i >= 0; i--)
        sp_chunk_backward_layer(c, i,
                                i > 0 ? sp_take_hidden(c, "dx") : sp_take_boundary(c, c->st, "dx"));
    if (c->global > 0)
        leave(c, SP_TENSOR_DX);
    else
        sp_chunk_embed_gradient(c, tokens_of(c), &c->flow);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &a->op;
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .ctx = sp_stage_context(g, st, op->pass == SP_F ? 'F' : 'B'),
        .fl = sp_multiplex_flight(g, op->chunk, op->mb, op->slice),
        .mb = op->mb,
        .slice = op->slice,
        .cut = sp_graph_cut(g, op->chunk),
        .global = op->chunk,
        .globals = plan->layout.stages,
        .share = op->pass == SP_B && sp_pipeline_size(&g->place) > 1 ? add_gradients : NULL,
    };

    if (a->index < 0) {
        sp_help_add(g, st, &a->tensor);
        return;
    }
    c.sh = &c.cut->shapes[op->slice];
    sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &c.first, &c.count);
    c.ctx.op_index = a->index;
    c.ctx.mb = op->mb;
    c.ctx.documents = sp_graph_documents(g, op->mb);
    c.ctx.slice = op->slice;
    c.ctx.op = sp_window_open(g->window, g->turn);
    if (op->chunk != st->index)
        sp_help_use(&c, op->pass == SP_B);
    if (sp_pipeline_size(&g->place) > 1)
        find_keys(&c);
    if (op->pass == SP_F)
        forward(&c);
    else
        backward(&c);
    sp_op_close(&c.ctx);
}

/* ---- the family ------------------------------------------------------------------------ */

static void destroy(struct sp_graph *g)
{
    if (!g->multiplex)
        return;
    sp_help_destroy(g);
    sp_flights_free(g->multiplex->flights);
    free(g->multiplex);
    g->multiplex = NULL;
}

static int create(struct sp_graph *g)
{
    int stages = sp_multiplex_layout(g)->stages;

    g->multiplex = calloc(1, sizeof *g->multiplex);
    if (!g->multiplex)
        return -ENOMEM;
    /* chunks are global stages, whatever stage computes */
    g->multiplex->flights = sp_flights_new(g, 0, stages, sp_flights_of(g->cfg.plan) / stages);
    return g->multiplex->flights ? sp_help_create(g) : -ENOMEM;
}

const struct sp_graph_family sp_graph_multiplexed = {
    .create = create,
    .destroy = destroy,
    .begin = sp_help_begin,
    .run = run,
    .make = make,
};
