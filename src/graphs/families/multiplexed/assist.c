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

static struct sp_tensor **weight(struct sp_multiplex_assist *h, const struct walk *w,
                                 enum sp_block_kind kind, int layer)
{
    return layer < 0 ? &h->end_w[kind]
                     : &h->layers.shard[sp_layer_block_at(kind, layer - w->first)];
}

static struct sp_tensor **sum(struct sp_multiplex_assist *h, const struct walk *w,
                              enum sp_block_kind kind, int layer)
{
    return layer < 0 ? &h->end_gradient[kind]
                     : &h->layers.sum[sp_layer_block_at(kind, layer - w->first)];
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
        w->owner ? sp_stage_piece(w->g, w->owner, &id, 0) : sp_multiplex_find(w->g, &id)->piece[0];
    return 0;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Takes the buffer in which the assisting stage sums gradients, and clears it. */
static int begin_sum(void *arg, enum sp_block_kind kind, int layer)
{
    struct walk *w = arg;
    struct sp_task_context ctx = sp_stage_context(w->g, w->helper, 'B');
    struct sp_tensor **s = sum(help_of(w->g, w->stage, w->global), w, kind, layer);
    struct sp_tensor_id id = {
        .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)kind, .mb = w->global, .at = layer};
    size_t bytes, elements = sp_tensor_piece(w->g->cfg.plan, &w->g->shape, &id, 0, &bytes);

    ctx.layer = layer;
    *s = sp_pool_get(w->helper->local, elements, bytes, "gradient");
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
    c->w = h->layers.w;
    c->end_w = h->end_w;
    c->gradient = h->layers.gradient;
    c->shards = c->g->shape.zero >= 2 ? &h->layers : NULL;
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
    struct sp_task_context ctx = sp_stage_context(g, st, 'S');
    struct sp_tensor **s = sum_of(g, st->index, id);

    sp_zero_add(st, &ctx);
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
                  st->index == id->mb ? sp_stage_piece(g, st, id, 0) : *sum_of(g, st->index, id),
                  sp_store_find(&st->store, id)->piece[0], false);
}

/* ---- room ----------------------------------------------------------------------------------- */

/* Weights or gradients that are whole all the time have no shards. */
static bool create_layers(const struct sp_graph *g, struct sp_zero_shards *s, int layers)
{
    size_t n = SP_LAYER_BLOCKS * (size_t)layers, each = sizeof(struct sp_tensor *);

    s->w = calloc(n, each);
    s->gradient = calloc(n, each);
    s->shard = g->shape.zero >= 3 ? calloc(n, each) : s->w;
    s->sum = g->shape.zero >= 2 ? calloc(n, each) : s->gradient;
    return s->w && s->gradient && s->shard && s->sum;
}

static void destroy_layers(struct sp_zero_shards *s)
{
    if (s->shard != s->w)
        free(s->shard);
    if (s->sum != s->gradient)
        free(s->sum);
    free(s->w);
    free(s->gradient);
}

int sp_multiplex_assist_create(struct sp_graph *g)
{
    size_t p = (size_t)sp_multiplex_layout(g)->stages;
    struct sp_multiplex *m = sp_multiplex_of(g);

    m->help = calloc(p * p, sizeof *m->help);
    if (!m->help)
        return -ENOMEM;
    for (int s = 0; s < (int)p; s++)
        for (int global = 0; global < (int)p; global++) {
            int first, count;

            sp_chunk_layers(g->cfg.plan, g->shape.model.layers, s, global, &first, &count);
            if (!create_layers(g, &help_of(g, s, global)->layers, count))
                return -ENOMEM;
        }
    return 0;
}

void sp_multiplex_assist_destroy(struct sp_graph *g)
{
    int p = sp_multiplex_layout(g)->stages;
    struct sp_multiplex_assist *help = sp_multiplex_of(g)->help;

    for (int i = 0; help && i < p * p; i++)
        destroy_layers(&help[i].layers);
    free(help);
}
