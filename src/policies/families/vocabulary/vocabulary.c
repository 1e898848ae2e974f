#include "policies/families/vocabulary/vocabulary.h"
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include <errno.h>
#include <stdio.h>

int sp_vocabulary_root(const struct sp_layout *lay)
{
    return sp_home(lay, 0, sp_globals(lay) - 1).stage;
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    if (lay->stages > 1 && lay->stages <= SP_VOCABULARY_STAGES)
        return 0;
    if (lay->stages == 1)
        snprintf(why, n,
                 "has one stage, which has all of the vocabulary; leave out "
                 "--vocabulary-parallel or use --stages 2");
    else
        snprintf(why, n,
                 "shares the vocabulary over at most %d stages, not %d; leave out "
                 "--vocabulary-parallel",
                 SP_VOCABULARY_STAGES, lay->stages);
    return -EINVAL;
}

/* ---- ops ---------------------------------------------------------------------------------- */

/* Those of the head, F and B, come after all others. */
static int ids(const struct sp_layout *lay)
{
    return sp_family_layerwise.ids(lay) + 2 * lay->stages * lay->micro_batches * lay->slices;
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int at = op->pass == SP_B;

    if (op->part != SP_HEAD)
        return sp_family_layerwise.id(lay, stage, op);
    if ((op->pass != SP_F && op->pass != SP_B) || op->chunk != 0 || stage < 0 ||
        stage >= lay->stages || op->mb < 0 || op->mb >= lay->micro_batches ||
        op->slice >= lay->slices)
        return -1;
    at = at * lay->stages + stage;
    at = at * lay->micro_batches + op->mb;
    return sp_family_layerwise.ids(lay) + at * lay->slices + op->slice;
}

static struct sp_dep head(enum sp_pass pass, int stage, const struct sp_op *op)
{
    return (struct sp_dep){
        .stage = stage,
        .op = {.pass = (unsigned char)pass, .part = SP_HEAD, .mb = op->mb, .slice = op->slice}};
}

static int heads(const struct sp_layout *lay, enum sp_pass pass, const struct sp_op *op,
                 struct sp_dep *out)
{
    for (int s = 0; s < lay->stages; s++)
        out[s] = head(pass, s, op);
    return lay->stages;
}

static int deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    int last = sp_globals(lay) - 1, n;
    struct sp_home end = sp_home(lay, 0, last);

    if (op->part == SP_HEAD && op->pass == SP_B)
        return heads(lay, SP_F, op, out);
    if (op->part == SP_HEAD) {
        out[0] = (struct sp_dep){.stage = end.stage,
                                 .op = {.chunk = end.chunk, .mb = op->mb, .slice = op->slice}};
        return 1;
    }
    n = sp_family_layerwise.deps(lay, stage, op, out);
    if (op->pass == SP_B && sp_global_stage(lay, stage, op->chunk) == last)
        n += heads(lay, SP_B, op, out + n);
    return n;
}

static void required(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg)
{
    sp_family_layerwise.required(lay, need, arg);
    for (int i = 0; i < lay->micro_batches * lay->slices; i++)
        for (int s = 0; s < lay->stages; s++) {
            struct sp_op unit = {.mb = i / lay->slices, .slice = (unsigned short)(i % lay->slices)};
            struct sp_dep f = head(SP_F, s, &unit), b = head(SP_B, s, &unit);

            need(arg, s, &f.op);
            need(arg, s, &b.op);
        }
}

/* What the last global stage takes for the head elsewhere, a third of it in the forward. */
static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    double share = sp_layerwise_head_cost(plan, costs, op) / plan->layout.stages;

    if (op->part == SP_HEAD)
        return op->pass == SP_F ? share / 3 : 2 * share / 3;
    return sp_layerwise_cost(plan, costs, stage, op);
}

static double again(const struct sp_plan *plan, const struct sp_costs *costs,
                    const struct sp_op *op)
{
    return op->part == SP_HEAD ? 0 : sp_family_layerwise.again(plan, costs, op);
}

/* The head's statistics and gradients come beside what goes from chunk to chunk, and so does its input, which may be
 * wanted in another order than it is made. */
static int stream(const struct sp_layout *lay, const struct sp_op *op)
{
    struct sp_home end = sp_home(lay, 0, sp_globals(lay) - 1);

    if (op->part == SP_HEAD)
        return op->pass == SP_B ? 1 : 3 + op->mb * lay->slices + op->slice;
    return op->pass == SP_B && op->chunk == end.chunk ? 2 : 0;
}

/* ---- the families --------------------------------------------------------------------------- */

#define VOCABULARY                                                                                 \
    .partitions = true, .pairs = true, .offloads = true, .recomputes_first = true,                 \
    .shares_tokens = true, .shares_parameters = true, .shares_vocabulary = true,                   \
    .prices_head = true, .check = check, .place = sp_layerwise_place,                              \
    .weave = sp_vocabulary_weave, .post_validates = sp_layerwise_post_validates, .id = id,         \
    .ids = ids, .foreign = sp_layerwise_foreign, .deps = deps, .required = required, .cost = cost, \
    .again = again, .activations = sp_layerwise_activations, .stream = stream,                     \
    .travelling = sp_vocabulary_travelling, .lower = sp_vocabulary_lower,                          \
    .lower_end = sp_vocabulary_lower_end

static const struct sp_family whole = {.name = "vocabulary-parallel", VOCABULARY};
static const struct sp_family slices = {.name = "vocabulary-parallel", .slices = true, VOCABULARY};

const struct sp_family *sp_vocabulary_variant(const struct sp_layout *lay,
                                              const struct sp_family *family)
{
    return !lay->vocabulary_parallel ? family : family->slices ? &slices : &whole;
}
