/*
 * The subsequence family with multiplexed slices: slices that lie beside the bubbles of the pipeline are
 * computed by several stages together (policies/families/multiplex.h), each a part of the tokens.
 *
 *   F(mb, stage, part):  [embed | rows from the parts of the stage before]  { pre  attn  post } per layer
 *   B(mb, stage, part):  [head | rows from the parts of the stage after]    { post.B attn.B pre.B  w }
 *
 * A stage that computes for another one reads its weights, and the keys and values of all parts before
 * its own, where they are; in another process it has copies. It adds up gradients of these weights by
 * itself, so that the parts need not wait for each other; the owner gets the sums at the end of a step, in
 * the order of the stages.
 */
#include "graphs/family.h"
#include "graphs/chunk.h"
#include "graphs/multiplexed.h"
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
    sp_rows_insert(&c->lane, sh, &rows, source, *to, begin == sh->first);
}

/* What the op's tokens have of the tensors that its neighbours left: as it is if the cut is the same,
 * otherwise put together. `slot`: of a flight, where they left it. */
static starpu_data_handle_t gather(struct sp_op_ctx *c, int global,
                                   starpu_data_handle_t *(*slot)(struct sp_chunk_flight *fl))
{
    const struct sp_cut *cut = sp_graph_cut(c->g, global);
    starpu_data_handle_t whole = NULL;
    int first, last;

    c->lane.layer = -1;
    sp_multiplex_overlap(sp_multiplex_layout(c->g), c->global, c->slice, global, &first, &last);
    for (int k = first; k <= last; k++) {
        const struct sp_shape *from = &cut->shapes[k];
        starpu_data_handle_t source = *slot(sp_multiplex_flight(c->g, global, c->mb, k));

        if (from->first == c->sh->first && from->seq == c->sh->seq) {
            whole = source;
            continue; /* others, if there are any, have none of these tokens */
        }
        copy_rows(c, from, source, &whole);
        sp_pool_put(source);
    }
    return whole;
}

static starpu_data_handle_t *output_of(struct sp_chunk_flight *fl)
{
    return &fl->out;
}

static starpu_data_handle_t *gradient_of(struct sp_chunk_flight *fl)
{
    return &fl->grad;
}

/* ---- the op --------------------------------------------------------------------------- */

static void forward(struct sp_op_ctx *c)
{
    bool last = c->global == c->globals - 1;

    if (c->global > 0) {
        c->fl->layers[0].x = gather(c, c->global - 1, output_of);
    } else {
        c->fl->layers[0].x = sp_take_hidden(c, "x");
        sp_chunk_embed(c, tokens_of(c), c->fl->layers[0].x);
    }
    for (int i = 0; i < c->count; i++) {
        bool top = i == c->count - 1;

        c->flow = top ? sp_take_boundary(c, c->st, "x") : sp_take_hidden(c, "x");
        sp_chunk_forward_layer(c, i, c->flow, top && last);
    }
    c->fl->out = c->flow;
    if (!last)
        sp_multiplex_hand_over(c, SP_F, c->global + 1);
}

static void backward(struct sp_op_ctx *c)
{
    if (c->global < c->globals - 1) {
        c->flow = gather(c, c->global + 1, gradient_of);
    } else {
        c->flow = sp_take_hidden(c, "dx");
        sp_chunk_head(c, tokens_of(c), c->flow);
    }
    for (int i = c->count - 1; i >= 0; i--)
        sp_chunk_backward_layer(c, i,
                                i > 0 ? sp_take_hidden(c, "dx") : sp_take_boundary(c, c->st, "dx"));
    c->fl->grad = c->flow;
    if (c->global > 0)
        sp_multiplex_hand_over(c, SP_B, c->global - 1);
    else
        sp_chunk_embed_gradient(c, tokens_of(c), &c->fl->grad);
}

static void submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &plan->programs[st->index].ops[index];
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .lane = sp_stage_lane(g, st, op->pass == SP_F ? 'F' : 'B'),
        .fl = sp_multiplex_flight(g, op->chunk, op->mb, op->slice),
        .mb = op->mb,
        .slice = op->slice,
        .cut = sp_graph_cut(g, op->chunk),
        .global = op->chunk,
        .globals = plan->layout.stages,
        .share = g->place.world.size > 1 ? sp_multiplex_share : NULL,
    };

    c.sh = &c.cut->shapes[op->slice];
    sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &c.first, &c.count);
    c.lane.op_index = index;
    c.lane.mb = op->mb;
    c.lane.slice = op->slice;
    c.lane.op = sp_window_open(g->window, g->turn);
    if (op->chunk != st->index)
        sp_help_use(&c, op->pass == SP_B);
    if (op->pass == SP_F)
        forward(&c);
    else
        backward(&c);
    sp_op_close(&c.lane);
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
    .end = sp_help_end,
    .pass_by = sp_multiplex_pass_by,
    .submit = submit,
};
