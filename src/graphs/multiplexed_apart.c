/*
 * What the ops of different processes exchange. Both ends of a message are submitted at the place of one
 * op in the order of submission: that which computed what is sent; or, of gradients of keys and values,
 * that to whose they are added. Whatever a process waits for lies before it in that order, so that none
 * waits for ever.
 *
 * Gradients of keys and values: each process has a sum of its own of what its parts add, and the sums
 * meet when the last one is there.
 */
#include "graphs/message.h"
#include "graphs/multiplexed.h"

void sp_multiplex_overlap(const struct sp_layout *lay, int from, int part, int to, int *first,
                          int *last)
{
    struct sp_slice_part mine = sp_part_at(lay, from, part);
    int begin = sp_first_part(lay, to, mine.slice);

    sp_parts_overlapping(mine.part, mine.of, sp_part_at(lay, to, begin).of, first, last);
    *first += begin;
    *last += begin;
}

/* Tensor 0 is what goes from stage to stage, 1 + l are keys and values of layer l, or gradients. */
static int64_t tag_of(const struct sp_graph *g, enum sp_pass pass, int global, int mb, int part,
                      int tensor)
{
    return sp_tag(g, pass == SP_F ? SP_MSG_FORWARD : SP_MSG_BACKWARD,
                  (int64_t)mb * SP_MAX_SLICES + part,
                  (int64_t)global * (g->shape.model.layers + 1) + tensor);
}

/* The stage of a process that computes a part, of those after `part` the last; -1: none does. */
static int later_stage(const struct sp_graph *g, int global, int part, int rank)
{
    const struct sp_layout *lay = sp_multiplex_layout(g);
    int last = part, stage = -1;

    for (int s = 0; s < lay->stages; s++)
        if (sp_stage_rank(&g->place, s) == rank && sp_last_part(lay, global, s) > last) {
            last = sp_last_part(lay, global, s);
            stage = s;
        }
    return stage;
}

/* ---- from stage to stage ------------------------------------------------------------------ */

void sp_multiplex_hand_over(struct sp_op_ctx *c, enum sp_pass pass, int to)
{
    struct sp_graph *g = c->g;
    int first, last, here = 0, sent = g->place.world.rank;

    sp_multiplex_overlap(sp_multiplex_layout(g), c->global, c->slice, to, &first, &last);
    for (int k = first; k <= last; k++) {
        int stage = sp_part_at(sp_multiplex_layout(g), to, k).stage;
        int rank = sp_stage_rank(&g->place, stage);

        if (rank == g->place.world.rank) {
            if (here++)
                sp_pool_hold(c->flow);
        } else if (rank != sent) { /* parts are in the order of stages, and stages of processes */
            sp_message_post_block(g, c->st, c->flow, stage,
                                  tag_of(g, pass, c->global, c->mb, c->slice, 0));
            sent = rank;
        }
    }
    if (!here)
        sp_pool_put(c->flow);
}

/* An op of another process, as this one sees it. */
struct remote {
    struct sp_graph *g;
    const struct sp_op *op;
    const struct sp_shape *sh;
    struct sp_chunk_flight *fl;
    int stage;
    int first, count; /* layers */
};

static int64_t tag_at(const struct remote *r, int tensor)
{
    return tag_of(r->g, r->op->pass == SP_F ? SP_F : SP_B, r->op->chunk, r->op->mb, r->op->slice,
                  tensor);
}

/* The meter of the op of this process that reads what comes. */
static struct sp_lane lane_of(const struct remote *r, int global, int part, struct sp_stage *st)
{
    struct sp_lane lane = sp_stage_lane(r->g, st, r->op->pass == SP_F ? 'F' : 'B');
    struct sp_dep reader = {.stage = st->index, .op = *r->op};

    reader.op.chunk = global;
    reader.op.slice = (unsigned short)part;
    lane.op_index = sp_index_place(&r->g->places, r->g->cfg.plan, &reader);
    return lane;
}

static void receive_rows(const struct remote *r)
{
    struct sp_graph *g = r->g;
    const struct sp_layout *lay = sp_multiplex_layout(g);
    bool forward = r->op->pass == SP_F;
    int to = forward ? r->op->chunk + 1 : r->op->chunk - 1, first, last;
    starpu_data_handle_t rows = NULL;

    if (to < 0 || to >= lay->stages)
        return;
    sp_multiplex_overlap(lay, r->op->chunk, r->op->slice, to, &first, &last);
    for (int k = first; k <= last; k++) {
        struct sp_stage *st = sp_graph_stage(g, sp_part_at(lay, to, k).stage);
        struct sp_lane lane;

        if (!st)
            continue;
        if (rows) {
            sp_pool_hold(rows);
            continue;
        }
        lane = lane_of(r, to, k, st);
        rows = sp_pool_get(st->boundary, (size_t)r->sh->rows * (size_t)r->sh->model.hidden,
                           sp_shape_elem(r->sh), "rows");
        sp_message_expect(g, &lane, rows, r->stage, tag_at(r, 0));
    }
    *(forward ? &r->fl->out : &r->fl->grad) = rows;
}

/* ---- keys, values and their gradients ----------------------------------------------------- */

static size_t keys_of(const struct sp_shape *sh)
{
    return (size_t)sh->rows * (size_t)sh->kv_width;
}

static void send_keys(struct sp_op_ctx *c, int i)
{
    struct sp_graph *g = c->g;

    for (int rank = 0; rank < g->place.world.size; rank++) {
        int stage = later_stage(g, c->global, c->slice, rank);

        if (rank != g->place.world.rank && stage >= 0)
            sp_message_post_block(g, c->st, c->fl->layers[i].kv, stage,
                                  tag_of(g, SP_F, c->global, c->mb, c->slice, 1 + c->first + i));
    }
}

static void add_gradients(struct sp_op_ctx *c, int i)
{
    struct sp_graph *g = c->g;

    for (int rank = 0; rank < g->place.world.size; rank++) {
        int stage = later_stage(g, c->global, c->slice, rank);
        starpu_data_handle_t theirs;

        if (rank == g->place.world.rank || stage < 0)
            continue;
        theirs = sp_pool_get(c->st->boundary, keys_of(c->sh), sp_shape_elem(c->sh), "dkv");
        sp_message_expect(g, &c->lane, theirs, stage,
                          tag_of(g, SP_B, c->global, c->mb, c->slice, 1 + c->first + i));
        sp_sum_insert(&c->lane, c->sh->dtype, c->fl->layers[i].dkv, theirs, false);
        sp_pool_put(theirs);
    }
}

void sp_multiplex_share(struct sp_op_ctx *c, int i)
{
    if (c->lane.pass == 'B')
        add_gradients(c, i);
    else
        send_keys(c, i);
}

static void receive_keys(const struct remote *r, struct sp_stage *reader)
{
    struct sp_lane lane = sp_stage_lane(r->g, reader, 'F');

    for (int i = 0; i < r->count; i++) {
        starpu_data_handle_t *kv = &r->fl->layers[i].kv;

        *kv = sp_pool_get(reader->local, keys_of(r->sh), sp_shape_elem(r->sh), "kv");
        sp_message_expect(r->g, &lane, *kv, r->stage, tag_at(r, 1 + r->first + i));
    }
}

/* The parts of this process that read the keys and values have all been submitted. */
static void send_gradients(const struct remote *r, struct sp_stage *reader)
{
    for (int i = r->count - 1; i >= 0; i--) {
        struct sp_layer_flight *t = &r->fl->layers[i];

        sp_message_post_block(r->g, reader, t->dkv, r->stage, tag_at(r, 1 + r->first + i));
        sp_drop(&t->dkv);
        sp_drop(&t->kv);
    }
}

void sp_multiplex_pass_by(struct sp_graph *g, int i)
{
    const struct sp_placed *at = &g->lowering.order[i];
    const struct sp_op *op = &g->cfg.plan->programs[at->stage].ops[at->index];
    struct remote r = {.g = g,
                       .op = op,
                       .sh = &sp_graph_cut(g, op->chunk)->shapes[op->slice],
                       .fl = sp_multiplex_flight(g, op->chunk, op->mb, op->slice),
                       .stage = at->stage};
    int reader;

    if (sp_stage_is_local(&g->place, at->stage))
        return;
    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, at->stage, op->chunk, &r.first, &r.count);
    reader = later_stage(g, op->chunk, op->slice, g->place.world.rank);
    if (reader >= 0 && op->pass == SP_F)
        receive_keys(&r, sp_graph_stage(g, reader));
    if (reader >= 0 && op->pass == SP_B)
        send_gradients(&r, sp_graph_stage(g, reader));
    receive_rows(&r);
}
