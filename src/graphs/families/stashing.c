/*
 * Families whose stages update their weights within a step (PipeDream,
 * policies/orders/pipedream.c): ops of the layerwise family, and after the last backward of every
 * batch (struct sp_map) the update of the stage. A forward reads the newest version of the stage's
 * weights, or the one that is `late` updates behind the batch's own; a backward reads the version
 * that its forward read. A version is one buffer per block; the newest is the one that the block's
 * state points to. An update writes into a version that nothing will read. This is the newest
 * itself, if forwards read the newest and no micro-batch in flight has read it; otherwise another
 * one, after the newest is copied to it. Without `late` there are as many versions as micro-batches
 * in flight at most: a backward leaves one less in flight, so one version is free. With `late`
 * there are late + 1.
 */
#include "graphs/families/layerwise.h"
#include "graphs/step.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <stdlib.h>

struct version {
    int readers;          /* micro-batches in flight that read it */
    int updates;          /* this step's updates in it; -1: from an earlier step */
    struct sp_tensor **w; /* [blocks of the stage] */
};

struct stashing {
    int n, newest;
    int batch, late;                        /* as in struct sp_map */
    struct version *version;                /* [n] */
    int *of;                                /* [micro_batches] version that each reads */
    struct sp_tensor **layers;              /* [layers][SP_LAYER_BLOCKS] of the current op */
    struct sp_tensor *ends[SP_BLOCK_KINDS]; /* the same for embedding and head */
};

/* ---- versions -------------------------------------------------------------------------------- */

/* The version that a forward reads. */
static int version_of(const struct stashing *s, int mb)
{
    int most = s->version[s->newest].updates, wanted = mb / s->batch - s->late, k = 0;

    if (!s->late || wanted >= most) /* without training no version is made */
        return s->newest;
    wanted = wanted > 0 ? wanted : 0;
    while (s->version[k].updates != wanted)
        k++;
    return k;
}

void sp_stashing_use(struct sp_op_ctx *c)
{
    struct stashing *s = c->st->own;
    const struct version *v;

    if (c->ctx.pass == 'F') {
        s->of[c->mb] = version_of(s, c->mb);
        s->version[s->of[c->mb]].readers++;
    }
    v = &s->version[s->of[c->mb]];
    for (int i = 0; i < c->st->n_blocks; i++) {
        const struct sp_block *b = &c->st->blocks[i];

        if (b->layer < 0)
            s->ends[b->kind] = v->w[i];
        else
            s->layers[sp_layer_block_at(b->kind, b->layer - c->first)] = v->w[i];
    }
    c->w = s->layers;
    c->end_w = s->ends;
}

static int unread(const struct stashing *s)
{
    if (!s->late && s->version[s->newest].readers == 0)
        return s->newest;
    for (int k = 0; k < s->n; k++)
        if (k != s->newest && s->version[k].readers == 0)
            return k;
    return s->newest; /* the only one, in a step of one batch */
}

/* Submits the update after a batch's last backward. Without training there are no updates, and the
 * gradients add up. */
static void end_backward(struct sp_graph *g, struct sp_stage *st, const struct sp_op *op)
{
    struct stashing *s = st->own;
    int to;

    s->version[s->of[op->mb]].readers--;
    if (!g->ahead || !sp_op_updates(&g->cfg.plan->layout, op))
        return;
    to = unread(s);
    for (int i = 0; i < st->n_blocks; i++)
        sp_step_apply(g, st, &st->blocks[i], &g->ahead[op->mb / s->batch], s->version[to].w[i]);
    s->version[to].updates = op->mb / s->batch + 1;
    s->newest = to;
}

/* A step begins with the newest weights. */
static void begin_step(struct sp_stage *st)
{
    struct stashing *s = st->own;

    for (int i = 0; i < s->n; i++)
        s->version[i].updates = i == s->newest ? 0 : -1;
}

/* ---- creation and destruction ---------------------------------------------------------------- */

/* Adds a version; the first one is the state itself. */
static int add_version(const struct sp_stage *st, bool first, struct version *v)
{
    v->w = calloc((size_t)st->n_blocks + 1, sizeof *v->w);
    if (!v->w)
        return -ENOMEM;
    for (int i = 0; i < st->n_blocks; i++) {
        const struct sp_block *b = &st->blocks[i];
        struct sp_tensor *w = b->state[SP_STATE_W];

        if (first)
            v->w[i] = w;
        else
            v->w[i] = sp_tensor_make(w->sink, b->n, sp_tensor_size(w) / b->n, "stashed weights");
    }
    return 0;
}

/* Creates the versions of a stage whose blocks exist, 0 or -ENOMEM. */
static int create_versions(struct sp_graph *g, struct sp_stage *st)
{
    const struct sp_plan *plan = g->cfg.plan;
    struct stashing *s = st->own = calloc(1, sizeof *s);
    int versions = sp_weight_versions(plan, st->index), err = s ? 0 : -ENOMEM;

    if (err)
        return err;
    s->batch = plan->map->batch;
    s->late = plan->map->late;
    s->version = calloc((size_t)versions, sizeof *s->version);
    s->of = calloc((size_t)plan->layout.micro_batches, sizeof *s->of);
    s->layers = calloc((size_t)g->shape.model.layers * SP_LAYER_BLOCKS, sizeof *s->layers);
    if (!s->version || !s->of || !s->layers)
        return -ENOMEM;
    while (!err && s->n < versions) {
        err = add_version(st, s->n == 0, &s->version[s->n]);
        s->n += !err;
    }
    return err;
}

/* The newest version belongs to the state, which frees it. */
static void destroy_versions(struct sp_stage *st)
{
    struct stashing *s = st->own;

    for (int k = 0; s && k < s->n; k++) {
        for (int i = 0; k != s->newest && i < st->n_blocks; i++)
            sp_tensor_unmake(s->version[k].w[i]);
        free(s->version[k].w);
    }
    if (s) {
        free(s->version);
        free(s->of);
        free(s->layers);
    }
    free(s);
    st->own = NULL;
}

/* ---- the family ------------------------------------------------------------------------------ */

static void begin(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        begin_step(&g->stages[k]);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    sp_graph_layerwise.run(g, st, a);
    if (a->op.pass == SP_B)
        end_backward(g, st, &a->op);
}

static int create(struct sp_graph *g)
{
    int err = sp_layerwise_create(g);

    for (int k = 0; !err && k < g->place.n_local; k++)
        err = create_versions(g, &g->stages[k]);
    return err;
}

static void destroy(struct sp_graph *g)
{
    sp_layerwise_destroy(g);
    for (int k = 0; k < g->place.n_local; k++)
        destroy_versions(&g->stages[k]);
}

const struct sp_graph_family sp_graph_stashing = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .run = run,
    .overwrites = true,
};
