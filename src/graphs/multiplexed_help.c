#include "graphs/message.h"
#include "graphs/multiplexed.h"
#include <stdlib.h>

static struct sp_help *help_of(const struct sp_graph *g, int stage, int global)
{
    return &g->multiplex->help[stage * sp_multiplex_layout(g)->stages + global];
}

/* ---- blocks of a stage, its process being this one or not ----------------------------------- */

struct walk {
    struct sp_graph *g;
    int global, first;       /* whose blocks, and the first of its layers */
    int stage;               /* that computes for it */
    struct sp_stage *owner;  /* NULL: in another process */
    struct sp_stage *helper; /* likewise */
};

static struct walk walk_of(struct sp_graph *g, int stage, int global)
{
    struct walk w = {.g = g,
                     .global = global,
                     .stage = stage,
                     .owner = sp_graph_stage(g, global),
                     .helper = sp_graph_stage(g, stage)};
    int count;

    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, stage, global, &w.first, &count);
    return w;
}

static void each_block(struct walk *w, sp_stage_block_fn fn)
{
    sp_stage_each_block(w->g->cfg.plan, &w->g->shape.model, w->global, fn, w);
}

static size_t elements_of(const struct walk *w, enum sp_block_kind kind)
{
    return sp_block_elements(&w->g->shape.model, kind);
}

static int64_t tag_of(const struct walk *w, enum sp_message what, enum sp_block_kind kind,
                      int layer)
{
    int p = sp_multiplex_layout(w->g)->stages;

    return sp_tag(w->g, what, (int64_t)(layer + 1) * SP_BLOCK_KINDS + kind,
                  (int64_t)w->stage * p + w->global);
}

static starpu_data_handle_t *weight(struct sp_help *h, const struct walk *w,
                                    enum sp_block_kind kind, int layer)
{
    return layer < 0 ? &h->end_w[kind] : &h->w[3 * (layer - w->first) + kind - SP_BLOCK_NORM1];
}

static starpu_data_handle_t *sum(struct sp_help *h, const struct walk *w, enum sp_block_kind kind,
                                 int layer)
{
    return layer < 0 ? &h->end_gradient[kind]
                     : &h->gradient[3 * (layer - w->first) + kind - SP_BLOCK_NORM1];
}

/* ---- weights ---------------------------------------------------------------------------------- */

static int send_weight(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;

    sp_message_post_block(w->g, w->owner, sp_stage_block(w->owner, kind, layer)->w, w->stage,
                          tag_of(w, SP_MSG_HELP_WEIGHT, kind, layer));
    return 0;
}

static int receive_weight(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;
    struct sp_lane lane = sp_stage_lane(w->g, w->helper, 'F');
    starpu_data_handle_t *copy = weight(help_of(w->g, w->helper->index, w->global), w, kind, layer);

    *copy = sp_pool_get(w->helper->local, elements_of(w, kind), sp_shape_elem(&w->g->shape),
                        "weights of others");
    sp_message_expect(w->g, &lane, *copy, w->global, tag_of(w, SP_MSG_HELP_WEIGHT, kind, layer));
    return 0;
}

static int drop_weight(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;

    sp_drop(weight(help_of(w->g, w->helper->index, w->global), w, kind, layer));
    return 0;
}

/* The stage of a process whose copy all of them read. */
static bool is_first_of_process(const struct sp_graph *g, int stage)
{
    return stage == 0 || sp_stage_rank(&g->place, stage - 1) != sp_stage_rank(&g->place, stage);
}

/* For every stage and process other than its own (each computes for every stage). */
static void each_copy(struct sp_graph *g, sp_stage_block_fn of_owner, sp_stage_block_fn of_helper)
{
    int p = sp_multiplex_layout(g)->stages;

    for (int global = 0; global < p; global++)
        for (int s = 0; s < p; s++) {
            struct walk w = walk_of(g, s, global);

            if (!is_first_of_process(g, s) ||
                sp_stage_rank(&g->place, s) == sp_stage_rank(&g->place, global))
                continue;
            if (w.owner && of_owner)
                each_block(&w, of_owner);
            if (w.helper)
                each_block(&w, of_helper);
        }
}

/* Where the helper reads a block. */
static int find_weight(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;

    *weight(help_of(w->g, w->stage, w->global), w, kind, layer) =
        w->owner ? sp_stage_block(w->owner, kind, layer)->w
                 : *weight(help_of(w->g, w->g->place.first_local, w->global), w, kind, layer);
    return 0;
}

void sp_help_begin(struct sp_graph *g)
{
    each_copy(g, send_weight, receive_weight);
    for (int k = 0; k < g->place.n_local; k++)
        for (int global = 0; global < sp_multiplex_layout(g)->stages; global++) {
            struct walk w = walk_of(g, g->stages[k].index, global);

            if (w.stage != global)
                each_block(&w, find_weight);
        }
}

/* ---- gradients ---------------------------------------------------------------------------------- */

/* What the helper adds up: 0 at first. */
static int begin_sum(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;
    struct sp_lane lane = sp_stage_lane(w->g, w->helper, 'B');
    starpu_data_handle_t *s = sum(help_of(w->g, w->stage, w->global), w, kind, layer);

    lane.layer = layer;
    *s = sp_pool_get(w->helper->local, elements_of(w, kind), sizeof(float), "gradient");
    sp_clear_insert(&lane, *s);
    return 0;
}

void sp_help_use(struct sp_op_ctx *c, bool backward)
{
    struct walk w = walk_of(c->g, c->st->index, c->global);
    struct sp_help *h = help_of(c->g, c->st->index, c->global);

    if (backward && !h->begun) {
        h->begun = true;
        each_block(&w, begin_sum);
    }
    c->w = h->w;
    c->end_w = h->end_w;
    c->gradient = h->gradient;
    c->end_gradient = h->end_gradient;
}

static void add(struct walk *w, enum sp_block_kind kind, int layer, starpu_data_handle_t s)
{
    struct sp_lane lane = sp_stage_lane(w->g, w->owner, 'S');

    lane.layer = layer;
    sp_sum_insert(&lane, SP_F32, sp_stage_block(w->owner, kind, layer)->g, s, false);
}

static int give_sum(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;
    int64_t tag = tag_of(w, SP_MSG_HELP_SUM, kind, layer);

    if (w->helper) {
        starpu_data_handle_t *s = sum(help_of(w->g, w->stage, w->global), w, kind, layer);

        if (w->owner)
            add(w, kind, layer, *s);
        else
            sp_message_post_block(w->g, w->helper, *s, w->global, tag);
        sp_drop(s);
    } else if (w->owner) {
        starpu_data_handle_t s =
            sp_pool_get(w->owner->boundary, elements_of(w, kind), sizeof(float), "gradient");
        struct sp_lane lane = sp_stage_lane(w->g, w->owner, 'S');

        sp_message_expect(w->g, &lane, s, w->stage, tag);
        add(w, kind, layer, s);
        sp_pool_put(s);
    }
    return 0;
}

void sp_help_end(struct sp_graph *g)
{
    int p = sp_multiplex_layout(g)->stages;

    for (int global = 0; global < p; global++)
        for (int s = 0; s < p; s++) {
            struct walk w = walk_of(g, s, global);

            if (s == global)
                continue;
            each_block(&w, give_sum);
            help_of(g, s, global)->begun = false;
        }
    each_copy(g, NULL, drop_weight);
}

/* ---- room ----------------------------------------------------------------------------------- */

int sp_help_create(struct sp_graph *g)
{
    size_t p = (size_t)sp_multiplex_layout(g)->stages;

    g->multiplex->help = calloc(p * p, sizeof *g->multiplex->help);
    if (!g->multiplex->help)
        return -ENOMEM;
    for (int s = 0; s < (int)p; s++)
        for (int global = 0; global < (int)p; global++) {
            struct sp_help *h = help_of(g, s, global);
            int first, count;

            sp_chunk_layers(g->cfg.plan, g->shape.model.layers, s, global, &first, &count);
            h->w = calloc(3 * (size_t)count, sizeof(starpu_data_handle_t));
            h->gradient = calloc(3 * (size_t)count, sizeof(starpu_data_handle_t));
            if (!h->w || !h->gradient)
                return -ENOMEM;
        }
    return 0;
}

void sp_help_destroy(struct sp_graph *g)
{
    int p = sp_multiplex_layout(g)->stages;

    for (int i = 0; g->multiplex->help && i < p * p; i++) {
        free(g->multiplex->help[i].w);
        free(g->multiplex->help[i].gradient);
    }
    free(g->multiplex->help);
}
