/*
 * The layerwise families: a chunk of consecutive layers on a stage, activations travel.
 *
 *   F(mb, chunk):  [embed]  { pre  attn  post } for each layer                   -> next stage
 *   B(mb, chunk):  [head]   { (recompute)  post.B attn.B pre.B  weight gradients } -> stage before
 *   W(mb, chunk):  the weight gradients, where the schedule separates them from B
 *
 * Each is expanded layer by layer, so that two ops that overlap take turns: the messages of one
 * travel while the other computes. What a layer keeps from F to B is set by --recompute;
 * everything else is freed at its last use.
 */
#include "graphs/family.h"
#include "graphs/chunk.h"
#include "graphs/message.h"
#include "graphs/offload.h"

/* Where global stage g of this micro-batch's pipe lives. */
static struct sp_home home_of(const struct sp_op_ctx *c, int global)
{
    return sp_home(&c->g->cfg.plan->layout, c->pipe, global);
}

/* A neighbouring stage, NULL if it is in another process. */
static struct sp_stage *neighbour(const struct sp_op_ctx *c, int global)
{
    return sp_graph_stage(c->g, home_of(c, global).stage);
}

static int64_t tag_of(const struct sp_op_ctx *c, enum sp_message kind, int global)
{
    int64_t part = (int64_t)c->mb * c->g->cfg.plan->layout.slices + c->slice;

    return sp_tag(c->g, kind, part, global);
}

/* Sends c->flow to the op of a pass on a neighbouring global stage. */
static void send(struct sp_op_ctx *c, enum sp_pass pass, int global)
{
    struct sp_home home = home_of(c, global);
    struct sp_op receiver = {.pass = (unsigned char)pass,
                             .slice = (unsigned short)c->slice,
                             .mb = c->mb,
                             .chunk = home.chunk};
    enum sp_message kind = pass == SP_F ? SP_MSG_FORWARD : SP_MSG_BACKWARD;

    sp_message_send(c->g, c->st, c->flow, home.stage, tag_of(c, kind, global),
                    sp_op_position(c->g, home.stage, &receiver));
    c->flow = NULL;
}

/* What crossed from another stage: handed over inside the process, received otherwise. */
static starpu_data_handle_t arrived(struct sp_op_ctx *c, starpu_data_handle_t handed,
                                    enum sp_message kind, int from, const char *name)
{
    starpu_data_handle_t handle;

    if (handed)
        return handed;
    handle = sp_take_boundary(c, c->st, name);
    sp_message_receive(c->g, &c->lane, handle, home_of(c, from).stage, tag_of(c, kind, c->global));
    return handle;
}

static struct sp_chunk_flight *flight_of(const struct sp_graph *g, struct sp_stage *st, int chunk,
                                         int mb, int slice)
{
    return &st->flights[sp_flight_number(g->cfg.plan, chunk, mb, slice)];
}

/* The same micro-batch and slice on a neighbouring stage of this process. */
static struct sp_chunk_flight *neighbour_flight(const struct sp_op_ctx *c, struct sp_stage *st,
                                                int global)
{
    return flight_of(c->g, st, home_of(c, global).chunk, c->mb, c->slice);
}

static int tokens_of(const struct sp_op_ctx *c)
{
    return c->mb * c->g->cfg.plan->layout.slices + c->slice;
}

/* ---- forward -------------------------------------------------------------------------- */

static void forward_begin(struct sp_op_ctx *c)
{
    starpu_data_handle_t x;

    if (c->global > 0) {
        x = arrived(c, c->fl->in, SP_MSG_FORWARD, c->global - 1, "x");
    } else {
        x = sp_take_boundary(c, c->st, "x");
        sp_chunk_embed(c, tokens_of(c), x);
    }
    c->fl->layers[0].x = x;
}

/* The handle that the last layer of a chunk writes: the next stage's, if it is in this process. */
static starpu_data_handle_t chunk_output(struct sp_op_ctx *c)
{
    struct sp_stage *next = c->global < c->globals - 1 ? neighbour(c, c->global + 1) : c->st;

    return sp_take_boundary(c, next ? next : c->st, "x");
}

static void forward_layer(struct sp_op_ctx *c, int i)
{
    bool top = i == c->count - 1, last = c->global == c->globals - 1;

    c->flow = top ? chunk_output(c) : sp_take_hidden(c, "x");
    sp_chunk_forward_layer(c, i, c->flow, top && last);
}

static void forward_end(struct sp_op_ctx *c)
{
    struct sp_stage *next;

    if (c->global == c->globals - 1) {
        c->fl->out = c->flow;
        return;
    }
    next = neighbour(c, c->global + 1);
    if (next) {
        neighbour_flight(c, next, c->global + 1)->in = c->flow;
    } else {
        send(c, SP_F, c->global + 1);
    }
}

/* ---- backward ------------------------------------------------------------------------- */

static void backward_begin(struct sp_op_ctx *c)
{
    if (c->global < c->globals - 1) {
        c->flow = arrived(c, c->fl->grad, SP_MSG_BACKWARD, c->global + 1, "dx");
    } else {
        c->flow = sp_take_boundary(c, c->st, "dx");
        sp_chunk_head(c, tokens_of(c), c->flow);
    }
    c->fl->grad = NULL;
}

static void backward_layer(struct sp_op_ctx *c, int i)
{
    struct sp_stage *prev = c->global > 0 ? neighbour(c, c->global - 1) : c->st;

    sp_chunk_backward_layer(
        c, i, i > 0 ? sp_take_hidden(c, "dx") : sp_take_boundary(c, prev ? prev : c->st, "dx"));
}

static void backward_end(struct sp_op_ctx *c)
{
    struct sp_stage *prev = c->global > 0 ? neighbour(c, c->global - 1) : NULL;

    c->fl->in = NULL;
    if (c->global == 0) {
        c->fl->grad = c->flow;
        if (!c->split)
            sp_chunk_embed_gradient(c, tokens_of(c), &c->fl->grad);
    } else if (prev) {
        neighbour_flight(c, prev, c->global - 1)->grad = c->flow;
    } else {
        send(c, SP_B, c->global - 1);
    }
}

static void chunk_wgrad(struct sp_op_ctx *c)
{
    for (int i = c->count - 1; i >= 0; i--) {
        sp_offload_slot(c, c->count - 1 - i);
        sp_layer_wgrad(c, i);
    }
    if (c->global == 0)
        sp_chunk_embed_gradient(c, tokens_of(c), &c->fl->grad);
}

/* ---- the op --------------------------------------------------------------------------- */

static void open_op(struct sp_graph *g, struct sp_stage *st, int index, struct sp_op_ctx *c)
{
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W', [SP_R] = 'R'};
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &plan->programs[st->index].ops[index];

    *c = (struct sp_op_ctx){
        .g = g,
        .st = st,
        .sh = &g->cuts[0].shapes[op->slice],
        .lane = sp_stage_lane(g, st, passes[op->pass]),
        .fl = flight_of(g, st, op->chunk, op->mb, op->slice),
        .mb = op->mb,
        .slice = op->slice,
        .pipe = sp_pipe_of_mb(&plan->layout, op->mb),
        .global = sp_global_stage(&plan->layout, st->index, op->chunk),
        .globals = sp_globals(&plan->layout),
        .split = op->pass == SP_B && !sp_op_releases(plan, st->index, op),
    };
    sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &c->first, &c->count);
    c->lane.op_index = index;
    c->lane.mb = op->mb;
    c->lane.slice = plan->layout.slices > 1 ? op->slice : -1;
    c->lane.op = sp_window_open(g->window, g->turn);
}

/* A forward of one micro-batch and a backward of another, by turns. */
static void overlap(struct sp_op_ctx *f, struct sp_op_ctx *b)
{
    forward_begin(f);
    backward_begin(b);
    for (int i = 0; i < f->count || i < b->count; i++) {
        if (i < f->count)
            forward_layer(f, i);
        if (i < b->count)
            backward_layer(b, b->count - 1 - i);
    }
    forward_end(f);
    backward_end(b);
}

static void submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    const struct sp_op *op = &g->cfg.plan->programs[st->index].ops[index];
    struct sp_op_ctx c, other;

    sp_message_release(g, sp_op_position(g, st->index, op));
    open_op(g, st, index, &c);
    if (op->overlap) {
        open_op(g, st, index + 1, &other);
        overlap(op->pass == SP_F ? &c : &other, op->pass == SP_F ? &other : &c);
        sp_op_close(&other.lane);
        sp_op_close(&c.lane);
        return;
    }
    switch (op->pass) {
    case SP_F:
        forward_begin(&c);
        for (int i = 0; i < c.count; i++)
            forward_layer(&c, i);
        forward_end(&c);
        break;
    case SP_B:
        backward_begin(&c);
        for (int i = c.count - 1; i >= 0; i--)
            backward_layer(&c, i);
        backward_end(&c);
        break;
    case SP_W:
        chunk_wgrad(&c);
        break;
    }
    sp_op_close(&c.lane);
}

/* ---- undoing -------------------------------------------------------------------------- */

/* What a forward sent to a stage of this process that has not run its own yet. */
static void receive_orphan(struct sp_graph *g, const struct sp_placed *placed)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    const struct sp_op *op = &g->cfg.plan->programs[placed->stage].ops[placed->index];
    int global = sp_global_stage(lay, placed->stage, op->chunk) + 1;
    struct sp_op_ctx c = {.g = g,
                          .sh = &g->cuts[0].shapes[op->slice],
                          .mb = op->mb,
                          .slice = op->slice,
                          .pipe = sp_pipe_of_mb(lay, op->mb),
                          .global = global};
    struct sp_chunk_flight *fl;

    if (global == sp_globals(lay) || sp_stage_is_local(&g->place, placed->stage))
        return;
    c.st = neighbour(&c, global);
    if (!c.st)
        return;
    fl = neighbour_flight(&c, c.st, global);
    if (!fl->layers[0].x)
        fl->in = arrived(&c, NULL, SP_MSG_FORWARD, global - 1, "x");
}

static void discard(struct sp_graph *g, int n)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;

    for (int i = 0; i < n; i++)
        receive_orphan(g, &g->order[i]);
    sp_transport_wait_all();
    sp_message_release(g, g->n_order);
    for (int k = 0; k < g->place.n_local; k++)
        sp_flights_drop(g, &g->stages[k], lay->chunks, lay->micro_batches * lay->slices);
}

/* ---- the family ------------------------------------------------------------------------ */

static int create(struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    int err = 0;

    for (int k = 0; !err && k < g->place.n_local; k++)
        err = sp_flights_create(g, &g->stages[k], lay->chunks, lay->micro_batches * lay->slices);
    return err;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_flights_destroy(&g->stages[k]);
}

const struct sp_graph_family sp_graph_layerwise = {
    .create = create,
    .destroy = destroy,
    .submit = submit,
    .discard = discard,
};
