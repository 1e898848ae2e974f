/* Families whose stages update their weights within a step: ops of the layerwise family, on
 * versions of weights (stashing.h). */
#include "graphs/families/stashing.h"
#include "graphs/families/family.h"
#include "graphs/families/layerwise.h"

static void begin(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_stashing_begin(&g->stages[k]);
}

static void run(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    sp_graph_layerwise.run(g, st, a);
    if (a->op.pass == SP_B)
        sp_stashing_end(g, st, &a->op);
}

static int create(struct sp_graph *g)
{
    int err = sp_layerwise_create(g);

    for (int k = 0; !err && k < g->place.n_local; k++)
        err = sp_stashing_create(g, &g->stages[k]);
    return err;
}

static void destroy(struct sp_graph *g)
{
    sp_layerwise_destroy(g);
    for (int k = 0; k < g->place.n_local; k++)
        sp_stashing_destroy(&g->stages[k]);
}

const struct sp_graph_family sp_graph_stashing = {
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .run = run,
};
