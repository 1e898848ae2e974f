/* The oracle's knowledge of the layerwise, subsequence and bidirectional families. It calls the
 * schedule's own placement, and nothing else of src/policies. */
#ifndef SP_TESTS_LAYERS_H
#define SP_TESTS_LAYERS_H

#include "policies/oracle.h"

static inline int layers_pipe(const struct oracle *o, int mb)
{
    const struct sp_plan *plan = o->plan;

    if (!o->two_ways)
        return 0;
    if (plan->def && plan->def->layerwise.pipe)
        return plan->def->layerwise.pipe(&plan->layout, mb);
    return mb >= (o->m + 1) / 2;
}

/* The number of an op on global stage g. */
static inline int layers_number(const struct oracle *o, int pass, int mb, int g, int slice)
{
    return ((pass * o->m + mb) * o->globals + g) * o->n + slice;
}

static inline int layers_id(const struct oracle *o, int stage, const struct sp_op *op)
{
    if (op->part != SP_CHUNK || op->pass >= SP_PASSES || op->mb < 0 || op->mb >= o->m ||
        op->chunk < 0 || op->chunk >= o->v || op->slice >= o->n ||
        (o->two_ways && op->chunk != layers_pipe(o, op->mb)))
        return -1;
    return layers_number(o, op->pass, op->mb, o->global[stage][op->chunk], op->slice);
}

static inline int layers_waits(const struct oracle *o, int stage, const struct sp_op *op,
                               struct oracle_wait out[ORACLE_WAITS])
{
    int g = o->global[stage][op->chunk], k = op->slice, pipe = layers_pipe(o, op->mb), n = 0;
    int last = o->globals - 1;

#define WAIT(pass, at, slice)                                                                      \
    (out[n++] = (struct oracle_wait){o->home[pipe][at],                                            \
                                     o->place[layers_number(o, pass, op->mb, at, slice)]})
    switch (op->pass) {
    case SP_F:
        if (g > 0)
            WAIT(SP_F, g - 1, k);
        if (k > 0)
            WAIT(SP_F, g, k - 1);
        break;
    case SP_B:
        if (g < last)
            WAIT(SP_B, g + 1, k);
        else
            WAIT(SP_F, g, o->n - 1); /* the loss of the whole sequence */
        if (k < o->n - 1)
            WAIT(SP_B, g, k + 1);
        WAIT(SP_F, g, k);
        if (o->place[layers_number(o, SP_R, op->mb, g, k)] >= 0)
            WAIT(SP_R, g, k);
        break;
    default:
        WAIT(op->pass == SP_W ? SP_B : SP_F, g, k);
    }
#undef WAIT
    return n;
}

/* Returns true if the W of a backward is part of it. */
static inline bool layers_whole(const struct oracle *o, int stage, const struct sp_op *op)
{
    return o->place[layers_number(o, SP_W, op->mb, o->global[stage][op->chunk], op->slice)] < 0;
}

/* The share of a whole stage's cost. */
static inline double layers_cost(const struct oracle *o, const struct sp_costs *c, int stage,
                                 const struct sp_op *op)
{
    double share = 1.0 / ((o->two_ways ? 1 : o->v) * o->n);

    if (op->pass == SP_W)
        return c->w * share;
    if (op->pass == SP_B)
        return (c->b + (layers_whole(o, stage, op) ? c->w : 0)) * share;
    return c->f * share;
}

static inline int layers_channel(const struct oracle *o, const struct sp_op *op)
{
    (void)o;
    return op->pass == SP_F;
}

/* From F to W, or to B if there is no W. */
static inline int layers_live(const struct oracle *o, int stage, const struct sp_op *op)
{
    if (op->pass == SP_F)
        return 1;
    return -(op->pass == SP_W || (op->pass == SP_B && layers_whole(o, stage, op)));
}

static inline bool layers_cover_family(const char *family)
{
    return !strcmp(family, "layerwise") || !strcmp(family, "subsequence") ||
           !strcmp(family, "bidirectional");
}

static inline bool layers_cover(const struct sp_plan *plan)
{
    return layers_cover_family(plan->family->name) && plan->family->facts.pairs;
}

static inline void layers_create(const struct sp_plan *plan, struct oracle *o)
{
    static const struct oracle_family family = {.pairs = true,
                                                .id = layers_id,
                                                .waits = layers_waits,
                                                .cost = layers_cost,
                                                .channel = layers_channel,
                                                .live = layers_live};
    const struct sp_layout *lay = &plan->layout;
    bool two_ways = !strcmp(plan->family->name, "bidirectional");
    int globals = lay->stages * (two_ways ? 1 : lay->chunks);
    int of_pass = lay->micro_batches * globals * lay->slices;

    *o = (struct oracle){.family = &family,
                         .two_ways = two_ways,
                         .globals = globals,
                         .ids = SP_PASSES * of_pass,
                         .required = 2 * of_pass}; /* F, then B */
    assert_true(lay->chunks <= ORACLE_CHUNKS);
    for (int s = 0; s < lay->stages; s++) {
        for (int c = 0; c < lay->chunks; c++) {
            int g = plan->def && plan->def->layerwise.global_stage
                        ? plan->def->layerwise.global_stage(lay, s, c)
                        : s + c * lay->stages;

            o->global[s][c] = g;
            o->home[two_ways ? c : 0][g] = s;
        }
    }
    oracle_create(plan, o);
}

#endif
