/*
 * The layerwise family: a chunk of consecutive layers on a stage, activations travel.
 *
 *   F(mb, chunk):  [embed]  { pre  attn  post } for each layer                   -> next stage
 *   B(mb, chunk):  [head]   { (recompute)  post.B attn.B pre.B  weight gradients } -> stage before
 *   W(mb, chunk):  the weight gradients, where the schedule separates them from B
 *
 * What a layer keeps from F to B is set by --recompute; everything else is freed at its last use.
 */
#include "graphs/layer.h"

static struct sp_stage *neighbour(const struct sp_op_ctx *c, int global)
{
    /* Loop placement: global stage g is chunk g / p of stage g mod p. */
    return sp_graph_stage(c->g, global % c->g->place.stages);
}

static int rank_of_global(const struct sp_op_ctx *c, int global)
{
    return sp_stage_rank(&c->g->place, global % c->g->place.stages);
}

static void send(struct sp_op_ctx *c, starpu_data_handle_t handle, enum sp_message kind, int global)
{
    c->st->bytes_sent += starpu_data_get_size(handle);
    sp_transport_send(handle, rank_of_global(c, global), sp_tag(c->g, kind, c->mb, global));
}

/* What crossed from another stage: handed over inside the process, received otherwise. */
static starpu_data_handle_t arrived(struct sp_op_ctx *c, starpu_data_handle_t handed,
                                    enum sp_message kind, int from, const char *name)
{
    starpu_data_handle_t handle;

    if (handed)
        return handed;
    handle = sp_take_boundary(c, c->st, name);
    sp_transport_recv(handle, rank_of_global(c, from), sp_tag(c->g, kind, c->mb, c->global));
    return handle;
}

static struct sp_chunk_flight *flight_of(const struct sp_graph *g, struct sp_stage *st, int chunk,
                                         int mb)
{
    return &st->flights[(size_t)chunk * (size_t)g->cfg.plan->layout.micro_batches + (size_t)mb];
}

/* ---- forward -------------------------------------------------------------------------- */

static starpu_data_handle_t chunk_input(struct sp_op_ctx *c)
{
    starpu_data_handle_t x;

    if (c->global > 0)
        return arrived(c, c->fl->in, SP_MSG_FORWARD, c->global - 1, "x");
    x = sp_take_boundary(c, c->st, "x");
    c->lane.layer = -1;
    sp_embed_fwd_insert(&c->lane, c->sh, c->g->ids[c->mb], sp_weight(c, SP_BLOCK_TOKENS, -1),
                        sp_weight(c, SP_BLOCK_POSITIONS, -1), x, 0);
    return x;
}

/* The handle that the last layer of a chunk writes: the next stage's, if it is in this process. */
static starpu_data_handle_t chunk_output(struct sp_op_ctx *c, struct sp_stage *next)
{
    return sp_take_boundary(c, next ? next : c->st, "x");
}

static void chunk_forward(struct sp_op_ctx *c)
{
    const struct sp_graph_config *cfg = &c->g->cfg;
    bool last = c->global == c->globals - 1;
    struct sp_stage *next = last ? c->st : neighbour(c, c->global + 1);
    starpu_data_handle_t y = NULL;

    c->fl->layers[0].x = chunk_input(c);
    for (int i = 0; i < c->count; i++) {
        struct sp_layer_flight *t = &c->fl->layers[i];
        bool top = i == c->count - 1, keeps_x;

        keeps_x = cfg->recompute != SP_RECOMPUTE_FULL || i % cfg->every == 0;
        y = top ? chunk_output(c, next) : sp_take_hidden(c, "x");
        sp_layer_forward(c, t, c->first + i, sp_keep_in_forward(cfg->recompute), keeps_x, y,
                         top && last);
        if (!keeps_x)
            sp_drop_x(c, i);
        if (!top)
            c->fl->layers[i + 1].x = y;
    }
    if (last) {
        c->fl->out = y;
    } else if (next) {
        flight_of(c->g, next, (c->global + 1) / c->g->place.stages, c->mb)->in = y;
    } else {
        send(c, y, SP_MSG_FORWARD, c->global + 1);
        sp_drop_boundary(c, &y);
    }
}

/* ---- backward ------------------------------------------------------------------------- */

static starpu_data_handle_t chunk_gradient(struct sp_op_ctx *c)
{
    enum sp_block_kind table = c->sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    starpu_data_handle_t dy;

    if (c->global < c->globals - 1)
        return arrived(c, c->fl->grad, SP_MSG_BACKWARD, c->global + 1, "dx");
    dy = sp_take_boundary(c, c->st, "dx");
    c->lane.layer = -1;
    sp_head_insert(&c->lane, c->sh, c->fl->out, c->g->targets[c->mb],
                   sp_weight(c, SP_BLOCK_NORM, -1), sp_weight(c, table, -1),
                   sp_gradient(c, SP_BLOCK_NORM, -1), sp_gradient(c, table, -1), dy, c->st->tally,
                   (int64_t)starpu_data_get_size(c->fl->out));
    sp_drop_boundary(c, &c->fl->out);
    return dy;
}

/* Runs the forward of layers a..b-1 of the chunk again, from the input of layer a. */
static void recompute(struct sp_op_ctx *c, int a, int b)
{
    struct sp_keep keep = {.saved = true, .cheap = true, .qkv = true, .attn = true};
    bool whole = c->g->cfg.recompute == SP_RECOMPUTE_FULL;

    keep.has_attn = !whole;
    for (int i = a; i < b; i++) {
        starpu_data_handle_t y = NULL;

        if (whole && i < b - 1)
            y = c->fl->layers[i + 1].x = sp_take_hidden(c, "x");
        sp_layer_forward(c, &c->fl->layers[i], c->first + i, keep, false, y, false);
    }
}

static void embed_gradient(struct sp_op_ctx *c)
{
    c->lane.layer = -1;
    sp_embed_wgrad_insert(&c->lane, c->sh, c->g->ids[c->mb], c->fl->grad,
                          sp_gradient(c, SP_BLOCK_TOKENS, -1),
                          sp_gradient(c, SP_BLOCK_POSITIONS, -1));
    sp_drop_boundary(c, &c->fl->grad);
}

static void chunk_backward(struct sp_op_ctx *c, bool split)
{
    const struct sp_graph_config *cfg = &c->g->cfg;
    bool again = cfg->recompute == SP_RECOMPUTE_FULL || cfg->recompute == SP_RECOMPUTE_NO_ATTENTION;
    struct sp_stage *prev = c->global > 0 ? neighbour(c, c->global - 1) : c->st;
    starpu_data_handle_t dy = chunk_gradient(c);

    c->fl->grad = NULL;
    for (int i = c->count - 1; i >= 0; i--) {
        struct sp_layer_flight *t = &c->fl->layers[i];
        starpu_data_handle_t dx;

        if (again && (i == c->count - 1 || (i + 1) % cfg->every == 0))
            recompute(c, i / cfg->every * cfg->every, i + 1);
        dx = i > 0 ? sp_take_hidden(c, "dx") : sp_take_boundary(c, prev ? prev : c->st, "dx");
        t->dy = dy;
        sp_layer_backward(c, t, c->first + i, dx);
        if (!split)
            sp_layer_wgrad(c, i);
        dy = dx;
    }
    c->fl->in = NULL;
    if (c->global == 0) {
        c->fl->grad = dy;
        if (!split)
            embed_gradient(c);
    } else if (prev) {
        flight_of(c->g, prev, (c->global - 1) / c->g->place.stages, c->mb)->grad = dy;
    } else {
        send(c, dy, SP_MSG_BACKWARD, c->global - 1);
        sp_drop_boundary(c, &dy);
    }
}

static void chunk_wgrad(struct sp_op_ctx *c)
{
    for (int i = c->count - 1; i >= 0; i--)
        sp_layer_wgrad(c, i);
    if (c->global == 0)
        embed_gradient(c);
}

/* ---- the op --------------------------------------------------------------------------- */

void sp_layerwise_submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W', [SP_R] = 'R'};
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &plan->programs[st->index].ops[index];
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->shape,
        .lane = sp_stage_lane(g, st, passes[op->pass]),
        .fl = flight_of(g, st, op->chunk, op->mb),
        .mb = op->mb,
        .global = sp_global_stage(&plan->layout, st->index, op->chunk),
        .globals = sp_globals(&plan->layout),
    };

    sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &c.first, &c.count);
    c.lane.op_index = index;
    c.lane.mb = op->mb;
    c.lane.op = sp_window_open(g->window);
    switch (op->pass) {
    case SP_F:
        chunk_forward(&c);
        break;
    case SP_B:
        chunk_backward(&c, plan->split &&
                               plan->deferred[plan->family->id(&plan->layout, st->index, op)]);
        break;
    case SP_W:
        chunk_wgrad(&c);
        break;
    }
    sp_window_close(c.lane.op);
}
