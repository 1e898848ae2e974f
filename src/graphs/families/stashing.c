/*
 * The weight-stashing family (PipeDream, policies/orders/pipedream.c): ops of the layerwise family, and after every
 * backward the update of its stage. Forwards read the newest version of the stage's weights, a backward the version
 * that its forward read. A version is a buffer for each block; the newest is where the block's state has its weights.
 * An update writes into a version that no micro-batch in flight has read: the newest itself, or another one, a copy of
 * the newest first. There are as many as micro-batches in flight at most: after a backward they are one less, so one is
 * free.
 */
#include "graphs/families/stashing.h"
#include "graphs/families/family.h"
#include "graphs/families/layerwise.h"
#include "graphs/step.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <stdlib.h>

struct version {
    int readers;          /* micro-batches in flight that read it */
    struct sp_tensor **w; /* [blocks of the stage] */
};

struct sp_stashing {
    int n, newest;
    struct version *version;                /* [n] */
    int *of;                                /* [micro_batches] version of each in flight */
    struct sp_tensor **layers;              /* [layers][SP_LAYER_BLOCKS] of the op at hand */
    struct sp_tensor *ends[SP_BLOCK_KINDS]; /* the same of embedding and head */
};

/* ---- versions --------------------------------------------------------------------------------- */

void sp_stashing_use(struct sp_op_ctx *c)
{
    struct sp_stashing *s = c->st->stashing;
    const struct version *v;

    if (c->ctx.pass == 'F') {
        s->of[c->mb] = s->newest;
        s->version[s->newest].readers++;
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

static int unread(const struct sp_stashing *s)
{
    int found = s->newest;

    for (int k = 0; s->version[found].readers > 0; k++)
        found = k;
    return found;
}

/* The backward of a micro-batch is submitted. Without updates, where nothing is trained, its gradients add up. */
static void end_of(struct sp_graph *g, struct sp_stage *st, int mb)
{
    struct sp_stashing *s = st->stashing;
    int to;

    s->version[s->of[mb]].readers--;
    if (!g->ahead)
        return;
    to = unread(s);
    for (int i = 0; i < st->n_blocks; i++)
        sp_step_apply(g, st, &st->blocks[i], &g->ahead[mb], s->version[to].w[i]);
    s->newest = to;
}

/* ---- the family ------------------------------------------------------------------------------- */

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    sp_graph_layerwise.run(g, st, a);
    if (a->op.pass == SP_B)
        end_of(g, st, a->op.mb);
}

/* The first version is the state itself. */
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

static int create_stage(struct sp_graph *g, struct sp_stage *st)
{
    const struct sp_plan *plan = g->cfg.plan;
    struct sp_stashing *s = st->stashing = calloc(1, sizeof *s);
    int versions = sp_weight_versions(plan, st->index), err = s ? 0 : -ENOMEM;

    if (err)
        return err;
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

static int create(struct sp_graph *g)
{
    int err = sp_layerwise_create(g);

    for (int k = 0; !err && k < g->place.n_local; k++)
        err = create_stage(g, &g->stages[k]);
    return err;
}

/* The newest version is the state's, which has it given back. */
static void destroy_stage(struct sp_stage *st)
{
    struct sp_stashing *s = st->stashing;

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
    st->stashing = NULL;
}

static void destroy(struct sp_graph *g)
{
    sp_layerwise_destroy(g);
    for (int k = 0; k < g->place.n_local; k++)
        destroy_stage(&g->stages[k]);
}

const struct sp_graph_family sp_graph_stashing = {
    .create = create,
    .destroy = destroy,
    .run = run,
};
