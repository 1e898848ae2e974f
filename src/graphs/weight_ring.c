/*
 * The weight-ring family (WeiPipe): a worker keeps its micro-batches, and the chunks of the model
 * come by with the gradients of their weights; src/policies/families/ring.h says which when, ring_around.c and
 * ring_line.c how.
 *
 *   F(mb, c):  [embed]  { pre  attn  post } for each layer of chunk c, with weights that came by
 *   L(mb):     final norm, logits, loss, and their gradients
 *   B(mb, c):  { (recompute)  post.B attn.B pre.B  weight gradients } onto the gradients that came by
 *   W(mb, c):  the weight gradients, and those of the norms, which B left apart: where schedules
 *              separate them, weights come by for B and gradients for W
 *
 * Embedding and head are on every worker: around the ring they would cost 2(G+1) times their size a
 * worker and step, their summed gradients cost 2.
 */
#include "graphs/chunk.h"
#include "graphs/everywhere.h"
#include "graphs/family.h"
#include "graphs/message.h"
#include "graphs/ring_flow.h"
#include "starpipe/order.h"
#include <stdlib.h>

static const struct sp_ring_flow *flow_of(const struct sp_graph *g)
{
    return sp_graph_ring(g)->layout == SP_RING_LINE ? &sp_ring_line : &sp_ring_around;
}

static struct sp_chunk_flight *flight(const struct sp_op_ctx *c, int chunk)
{
    int rounds = sp_graph_ring(c->g)->rounds;

    return &c->st->flights[chunk * rounds + c->mb / sp_graph_workers(c->g)];
}

/* Where the gradients of the norms of a chunk wait from B to W of a micro-batch. */
static starpu_data_handle_t *norms_of(const struct sp_op_ctx *c)
{
    size_t round = (size_t)(c->mb / sp_graph_workers(c->g));

    return &c->st->norms[2 * (round * (size_t)c->sh->model.layers + (size_t)c->first)];
}

static void take_norms(struct sp_op_ctx *c)
{
    starpu_data_handle_t *norms = norms_of(c);

    for (int i = 0; i < 2 * c->count; i++) {
        c->lane.layer = c->first + i / 2;
        norms[i] = sp_pool_get(c->st->local, sp_block_elements(&c->sh->model, SP_BLOCK_NORM1),
                               sizeof(float), "norms");
        sp_clear_insert(&c->lane, norms[i]);
    }
    c->norms = norms;
}

static void add_norms(struct sp_op_ctx *c)
{
    starpu_data_handle_t *norms = norms_of(c);

    for (int i = 0; i < c->count; i++) {
        c->lane.layer = c->first + i;
        sp_sum_insert(&c->lane, SP_F32, sp_gradient(c, SP_BLOCK_NORM1, c->lane.layer), norms[2 * i],
                      false);
        sp_norm2_add_insert(&c->lane, c->sh, norms[2 * i + 1],
                            sp_gradient(c, SP_BLOCK_POST, c->lane.layer));
        sp_drop(&norms[2 * i]);
        sp_drop(&norms[2 * i + 1]);
    }
}

static void expand(struct sp_op_ctx *c, const struct sp_op *op)
{
    int last = sp_graph_workers(c->g) - 1;

    if (op->part == SP_HEAD) {
        c->fl = flight(c, last);
        c->fl->grad = sp_take_hidden(c, "dx");
        sp_chunk_head(c, c->mb, c->fl->grad);
        return;
    }
    switch (op->pass) {
    case SP_F:
        sp_chunk_forward(c, op->chunk < last ? flight(c, op->chunk + 1) : NULL);
        break;
    case SP_B:
        if (c->split)
            take_norms(c);
        sp_chunk_backward(c, op->chunk > 0 ? flight(c, op->chunk - 1) : NULL);
        break;
    case SP_W:
        for (int i = c->count - 1; i >= 0; i--)
            sp_layer_wgrad(c, i);
        add_norms(c);
        if (op->chunk == 0)
            sp_chunk_embed_gradient(c, c->mb, &c->fl->grad);
        break;
    }
}

/* Whether an op is the last of its worker that adds to the gradients of embedding and head. */
static bool ends_last(const struct sp_graph *g, int worker, int index)
{
    const struct sp_program *prog = &g->cfg.plan->programs[worker];

    for (int k = prog->n - 1; k >= 0; k--) {
        const struct sp_op *op = &prog->ops[k];

        if (op->part == SP_HEAD || (op->chunk == 0 && sp_ring_adds(g, worker, op)))
            return k == index;
    }
    return false;
}

static void submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W'};
    const struct sp_op *op = sp_graph_op(g, st->index, index);
    struct sp_hand *weights = NULL, *gradients = NULL;
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->shape,
        .lane = sp_stage_lane(g, st, passes[op->pass]),
        .mb = op->mb,
        .split = op->pass == SP_B && !sp_op_releases(g->cfg.plan, st->index, op),
    };

    flow_of(g)->arrive(g, st, index, &weights, &gradients);
    c.w = weights ? weights->block : NULL;
    c.gradient = gradients ? gradients->block : NULL;
    c.lane.op_index = index;
    c.lane.mb = op->mb;
    c.lane.op = sp_window_open(g->window, g->turn);
    sp_ring_layers(g, op->chunk, &c.first, &c.count);
    c.fl = flight(&c, op->chunk);
    expand(&c, op);
    sp_op_close(&c.lane);
    flow_of(g)->leave(g, st, index);
    if (sp_graph_workers(g) > 1 && ends_last(g, st->index, index))
        sp_everywhere_add(g, st);
}

static void pass_by(struct sp_graph *g, int i)
{
    sp_message_release(g, i);
    flow_of(g)->pass_by(g, i);
}

static void begin(struct sp_graph *g)
{
    if (flow_of(g)->begin)
        flow_of(g)->begin(g);
}

static void end(struct sp_graph *g)
{
    if (flow_of(g)->end)
        flow_of(g)->end(g);
}

static void discard(struct sp_graph *g, int n)
{
    (void)n;
    sp_transport_wait_all();
    sp_message_release(g, g->n_order);
    flow_of(g)->discard(g);
    for (int k = 0; k < g->place.n_local; k++)
        sp_flights_drop(g, &g->stages[k], sp_graph_workers(g), sp_graph_ring(g)->rounds);
}

static int create(struct sp_graph *g)
{
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        st->norms = calloc(2 * (size_t)g->shape.model.layers * (size_t)sp_graph_ring(g)->rounds,
                           sizeof(starpu_data_handle_t));
        err = st->norms ? flow_of(g)->create(g, st) : -ENOMEM;
        err = err ? err : sp_flights_create(g, st, sp_graph_workers(g), sp_graph_ring(g)->rounds);
    }
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        flow_of(g)->destroy(&g->stages[k]);
        sp_flights_destroy(&g->stages[k]);
        free(g->stages[k].norms);
    }
}

const struct sp_graph_family sp_graph_weight_ring = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .end = end,
    .pass_by = pass_by,
    .submit = submit,
    .discard = discard,
};
