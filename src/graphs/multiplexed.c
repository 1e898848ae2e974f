/*
 * The subsequence family with multiplexed slices: slices that lie beside the bubbles of the pipeline are
 * computed by several stages together (policies/multiplex.h), each a part of the tokens.
 *
 *   F(mb, stage, part):  [embed | rows from the parts of the stage before]  { pre  attn  post } per layer
 *   B(mb, stage, part):  [head | rows from the parts of the stage after]    { post.B attn.B pre.B  w }
 *
 * A stage that computes for another one reads its weights, and the keys and values of all parts before
 * its own, where they are. It adds up gradients of these weights by itself, so that the parts need not
 * wait for each other; the owner gets the sums at the end of a step, in the order of the stages.
 */
#include "graphs/family.h"
#include "graphs/chunk.h"
#include "graphs/offload.h"
#include "policies/multiplex.h"
#include <stdlib.h>

/* What a stage adds up for another one, and where it reads the weights. */
struct help {
    starpu_data_handle_t *w, *gradient;         /* [layers of the other][3] */
    starpu_data_handle_t end_w[SP_BLOCK_KINDS]; /* embedding, or final norm and head */
    starpu_data_handle_t end_gradient[SP_BLOCK_KINDS];
    bool begun; /* in this step */
};

struct sp_multiplex {
    struct sp_chunk_flight *flights; /* [stages][micro_batches][stride] */
    struct sp_layer_flight *layers;
    struct help *help; /* [stages that compute][stages they compute for] */
};

static const struct sp_layout *layout_of(const struct sp_graph *g)
{
    return &g->cfg.plan->layout;
}

static struct sp_chunk_flight *flight_of(const struct sp_graph *g, int global, int mb, int part)
{
    return &g->multiplex->flights[sp_flight_number(g->cfg.plan, global, mb, part)];
}

static struct help *help_of(const struct sp_graph *g, int stage, int global)
{
    return &g->multiplex->help[stage * layout_of(g)->stages + global];
}

static int tokens_of(const struct sp_op_ctx *c)
{
    return c->mb * c->cut->n + c->slice;
}

/* ---- rows from stage to stage ------------------------------------------------------------ */

/* The parts of the same slice on another stage with which the op shares tokens: first .. last. */
static void neighbours(const struct sp_op_ctx *c, int global, int *first, int *last)
{
    const struct sp_layout *lay = layout_of(c->g);
    struct sp_slice_part mine = sp_part_at(lay, c->global, c->slice);
    int begin = sp_first_part(lay, global, mine.slice);

    sp_parts_overlapping(mine.part, mine.of, sp_part_at(lay, global, begin).of, first, last);
    *first += begin;
    *last += begin;
}

/* c->flow goes to the ops of a neighbouring stage, each of which gives it back. */
static void hand_over(struct sp_op_ctx *c, int global)
{
    int first, last;

    neighbours(c, global, &first, &last);
    for (int k = first; k < last; k++)
        sp_pool_hold(c->flow);
}

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
    neighbours(c, global, &first, &last);
    for (int k = first; k <= last; k++) {
        const struct sp_shape *from = &cut->shapes[k];
        starpu_data_handle_t source = *slot(flight_of(c->g, global, c->mb, k));

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
        enum sp_recompute mode = sp_chunk_recompute(c, i);
        bool keeps_x = mode != SP_RECOMPUTE_FULL || i % c->g->cfg.every == 0;
        bool top = i == c->count - 1;

        c->flow = top ? sp_take_boundary(c, c->st, "x") : sp_take_hidden(c, "x");
        sp_offload_slot(c, 2 * i);
        sp_layer_forward(c, i, sp_keep_in_forward(mode), keeps_x, c->flow, top && last);
        if (!keeps_x)
            sp_drop(&c->fl->layers[i].x);
        sp_offload_leave(c, i);
        if (!top)
            c->fl->layers[i + 1].x = c->flow;
    }
    c->fl->out = c->flow;
    if (!last)
        hand_over(c, c->global + 1);
}

static void backward(struct sp_op_ctx *c)
{
    if (c->global < c->globals - 1) {
        c->flow = gather(c, c->global + 1, gradient_of);
    } else {
        c->flow = sp_take_hidden(c, "dx");
        sp_chunk_head(c, tokens_of(c), c->flow);
    }
    for (int i = c->count - 1; i >= 0; i--) {
        sp_offload_slot(c, c->count - 1 - i);
        sp_chunk_backward_layer(c, i,
                                i > 0 ? sp_take_hidden(c, "dx") : sp_take_boundary(c, c->st, "dx"));
    }
    c->fl->grad = c->flow;
    if (c->global > 0)
        hand_over(c, c->global - 1);
    else
        sp_chunk_embed_gradient(c, tokens_of(c), &c->fl->grad);
}

/* The owner's gradient of a block, and what another stage adds up for it: 0 at first. */
static starpu_data_handle_t accumulator(struct sp_op_ctx *c, const struct sp_block *b)
{
    starpu_data_handle_t sum = sp_pool_get(c->st->local, b->n, sizeof(float), "gradient");

    c->lane.layer = b->layer;
    sp_clear_insert(&c->lane, sum);
    return sum;
}

/* In the first backward of a step. */
static void begin_help(struct sp_op_ctx *c, struct help *h)
{
    struct sp_stage *owner = sp_graph_stage(c->g, c->global);

    if (h->begun)
        return;
    h->begun = true;
    for (int i = 0; i < owner->n_blocks; i++) {
        struct sp_block *b = &owner->blocks[i];

        if (b->layer < 0)
            h->end_gradient[b->kind] = accumulator(c, b);
        else
            h->gradient[3 * (b->layer - c->first) + b->kind - SP_BLOCK_NORM1] = accumulator(c, b);
    }
}

static void use_weights(struct sp_op_ctx *c, struct help *h)
{
    struct sp_stage *owner = sp_graph_stage(c->g, c->global);

    for (int i = 0; i < owner->n_blocks; i++) {
        struct sp_block *b = &owner->blocks[i];

        if (b->layer < 0)
            h->end_w[b->kind] = b->w;
        else
            h->w[3 * (b->layer - c->first) + b->kind - SP_BLOCK_NORM1] = b->w;
    }
    c->w = h->w;
    c->end_w = h->end_w;
    c->gradient = h->gradient;
    c->end_gradient = h->end_gradient;
}

static void submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &plan->programs[st->index].ops[index];
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .lane = sp_stage_lane(g, st, op->pass == SP_F ? 'F' : 'B'),
        .fl = flight_of(g, op->chunk, op->mb, op->slice),
        .mb = op->mb,
        .slice = op->slice,
        .cut = sp_graph_cut(g, op->chunk),
        .global = op->chunk,
        .globals = plan->layout.stages,
    };

    c.sh = &c.cut->shapes[op->slice];
    sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &c.first, &c.count);
    c.lane.op_index = index;
    c.lane.mb = op->mb;
    c.lane.slice = op->slice;
    c.lane.op = sp_window_open(g->window, g->turn);
    if (op->chunk != st->index) {
        use_weights(&c, help_of(g, st->index, op->chunk));
        if (op->pass == SP_B)
            begin_help(&c, help_of(g, st->index, op->chunk));
    }
    if (op->pass == SP_F)
        forward(&c);
    else
        backward(&c);
    sp_window_close(c.lane.op);
}

/* ---- the sums ------------------------------------------------------------------------- */

static void give_sum(struct sp_lane *lane, struct sp_block *b, starpu_data_handle_t *sum)
{
    lane->layer = b->layer;
    sp_sum_insert(lane, b->g, *sum, false);
    sp_drop(sum);
}

static void end(struct sp_graph *g)
{
    int p = layout_of(g)->stages;

    for (int global = 0; global < p; global++) {
        struct sp_stage *owner = sp_graph_stage(g, global);
        struct sp_lane lane = sp_stage_lane(g, owner, 'S');
        int first, count;

        sp_chunk_layers(g->cfg.plan, g->shape.model.layers, global, global, &first, &count);
        for (int s = 0; s < p; s++) {
            struct help *h = help_of(g, s, global);

            if (!h->begun)
                continue;
            h->begun = false;
            for (int i = 0; i < owner->n_blocks; i++) {
                struct sp_block *b = &owner->blocks[i];

                give_sum(&lane, b,
                         b->layer < 0
                             ? &h->end_gradient[b->kind]
                             : &h->gradient[3 * (b->layer - first) + b->kind - SP_BLOCK_NORM1]);
            }
        }
    }
}

/* ---- the family ------------------------------------------------------------------------ */

static void destroy(struct sp_graph *g)
{
    struct sp_multiplex *m = g->multiplex;
    int p = layout_of(g)->stages;

    if (!m)
        return;
    for (int i = 0; m->help && i < p * p; i++) {
        free(m->help[i].w);
        free(m->help[i].gradient);
    }
    free(m->help);
    free(m->layers);
    free(m->flights);
    free(m);
    g->multiplex = NULL;
}

static int create_help(struct sp_graph *g, int stage, int global)
{
    struct help *h = help_of(g, stage, global);
    int first, count;

    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, global, global, &first, &count);
    h->w = calloc(3 * (size_t)count, sizeof *h->w);
    h->gradient = calloc(3 * (size_t)count, sizeof *h->gradient);
    return h->w && h->gradient ? 0 : -ENOMEM;
}

static int create(struct sp_graph *g)
{
    const struct sp_layout *lay = layout_of(g);
    size_t p = (size_t)lay->stages, M = (size_t)lay->micro_batches, layers = 0;
    struct sp_multiplex *m = g->multiplex = calloc(1, sizeof *m);
    int err = 0, first, count;

    if (!m)
        return -ENOMEM;
    m->flights = calloc((size_t)sp_flights_of(g->cfg.plan), sizeof *m->flights);
    m->layers =
        calloc((size_t)g->shape.model.layers * M * (size_t)sp_flights_of(g->cfg.plan) / p / M,
               sizeof *m->layers);
    m->help = calloc(p * p, sizeof *m->help);
    if (!m->flights || !m->layers || !m->help)
        return -ENOMEM;
    for (int global = 0; global < lay->stages; global++) {
        sp_chunk_layers(g->cfg.plan, g->shape.model.layers, global, global, &first, &count);
        for (int mb = 0; mb < lay->micro_batches; mb++)
            for (int k = 0; k < sp_flights_of(g->cfg.plan) / lay->stages / lay->micro_batches;
                 k++) {
                flight_of(g, global, mb, k)->layers = m->layers + layers;
                layers += (size_t)count;
            }
        for (int s = 0; !err && s < lay->stages; s++)
            err = create_help(g, s, global);
    }
    return err;
}

const struct sp_graph_family sp_graph_multiplexed = {
    .create = create,
    .destroy = destroy,
    .end = end,
    .submit = submit,
};
