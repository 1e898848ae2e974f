#include "graphs/families/multiplexed/multiplexed.h"
#include "sp_error.h"
#include <stdlib.h>

static struct sp_multiplex_assist *help_of(const struct sp_graph *g, int stage, int global)
{
    return &sp_multiplex_of(g)->help[stage * sp_multiplex_layout(g)->stages + global];
}

/* ---- blocks of a stage of this process or another -------------------------------------------- */

struct walk {
    struct sp_graph *g;
    int global, first;       /* the stage that owns the blocks, and its first layer */
    int stage;               /* the stage that computes for it */
    struct sp_stage *owner;  /* NULL: in another process */
    struct sp_stage *helper; /* NULL: in another process */
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
    sp_stage_each_block(w->g->cfg.plan, &w->g->shape.held, w->global, fn, w);
}

static size_t elements_of(const struct walk *w, enum sp_block_kind kind)
{
    return sp_block_elements(&w->g->shape.held, kind);
}

static struct sp_tensor **weight(struct sp_multiplex_assist *h, const struct walk *w,
                                 enum sp_block_kind kind, int layer)
{
    return layer < 0 ? &h->end_w[kind] : &h->w[sp_layer_block_at(kind, layer - w->first)];
}

static struct sp_tensor **sum(struct sp_multiplex_assist *h, const struct walk *w,
                              enum sp_block_kind kind, int layer)
{
    return layer < 0 ? &h->end_gradient[kind]
                     : &h->gradient[sp_layer_block_at(kind, layer - w->first)];
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Finds the weights that the assisting stage reads: the owner's, or the copy that all stages of the
 * process share. */
static int find_weight(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;
    struct sp_tensor_id id = {
        .kind = SP_TENSOR_BLOCK, .block = (unsigned char)kind, .mb = w->global, .at = layer};

    *weight(help_of(w->g, w->stage, w->global), w, kind, layer) =
        w->owner ? sp_stage_weight(w->owner, kind, layer) : sp_multiplex_find(w->g, &id)->piece[0];
    return 0;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Takes the buffer in which the assisting stage sums gradients, and clears it. */
static int begin_sum(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;
    struct sp_task_context ctx = sp_stage_context(w->g, w->helper, 'B');
    struct sp_tensor **s = sum(help_of(w->g, w->stage, w->global), w, kind, layer);

    ctx.layer = layer;
    *s = sp_pool_get(w->helper->local, elements_of(w, kind), sizeof(float), "gradient");
    sp_clear_insert(&ctx, *s);
    return 0;
}

void sp_multiplex_assist_use(struct sp_op_ctx *c, bool backward)
{
    struct walk w = walk_of(c->g, c->st->index, c->global);
    struct sp_multiplex_assist *h = help_of(c->g, c->st->index, c->global);

    each_block(&w, find_weight);
    if (backward && !h->adds)
        each_block(&w, begin_sum);
    h->adds |= backward;
    c->w = h->w;
    c->end_w = h->end_w;
    c->gradient = h->gradient;
    c->end_gradient = h->end_gradient;
}

/* The sum that a stage has of the gradients of another stage's block. */
static struct sp_tensor **sum_of(struct sp_graph *g, int stage, const struct sp_tensor_id *id)
{
    struct walk w = walk_of(g, stage, id->mb);

    return sum(help_of(g, stage, id->mb), &w, (enum sp_block_kind)id->block, id->at);
}

void sp_multiplex_assist_leave(struct sp_graph *g, struct sp_stage *st,
                               const struct sp_tensor_id *id)
{
    struct sp_tensor **s = sum_of(g, st->index, id);

    if (*s)
        sp_store_put(&st->store, id, 1, s, true);
    *s = NULL;
    help_of(g, st->index, id->mb)->adds = false;
}

void sp_multiplex_assist_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'S');

    ctx.layer = id->at;
    sp_sum_insert(&ctx, SP_F32,
                  st->index == id->mb ? sp_stage_gradient(st, (enum sp_block_kind)id->block, id->at)
                                      : *sum_of(g, st->index, id),
                  sp_store_find(&st->store, id)->piece[0], false);
}

/* ---- room ----------------------------------------------------------------------------------- */

int sp_multiplex_assist_create(struct sp_graph *g)
{
    size_t p = (size_t)sp_multiplex_layout(g)->stages;
    struct sp_multiplex *m = sp_multiplex_of(g);

    m->help = calloc(p * p, sizeof *m->help);
    if (!m->help)
        return -ENOMEM;
    for (int s = 0; s < (int)p; s++)
        for (int global = 0; global < (int)p; global++) {
            struct sp_multiplex_assist *h = help_of(g, s, global);
            int first, count;

            sp_chunk_layers(g->cfg.plan, g->shape.model.layers, s, global, &first, &count);
            h->w = calloc(3 * (size_t)count, sizeof(struct sp_tensor *));
            h->gradient = calloc(3 * (size_t)count, sizeof(struct sp_tensor *));
            if (!h->w || !h->gradient)
                return -ENOMEM;
        }
    return 0;
}

void sp_multiplex_assist_destroy(struct sp_graph *g)
{
    int p = sp_multiplex_layout(g)->stages;
    struct sp_multiplex_assist *help = sp_multiplex_of(g)->help;

    for (int i = 0; help && i < p * p; i++) {
        free(help[i].w);
        free(help[i].gradient);
    }
    free(help);
}
