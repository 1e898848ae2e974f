#include "policies/families/vocabulary/vocabulary.h"
#include "policies/families/attention_parallel/attention_parallel.h"
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/families/work.h"
#include <errno.h>
#include <stdio.h>

const struct sp_family *sp_vocabulary_base(const struct sp_layout *lay)
{
    return lay->map && lay->map->base ? lay->map->base : &sp_family_layerwise;
}

struct sp_dep sp_vocabulary_last(const struct sp_layout *lay, enum sp_pass pass,
                                 const struct sp_op *unit)
{
    struct sp_dep last = {
        .op = {.pass = (unsigned char)pass, .mb = unit->mb, .slice = unit->slice}};
    struct sp_chunk_owner home;

    if (sp_vocabulary_base(lay)->facts.parts) {
        last.op.part = SP_BLOCK;
        last.op.chunk = lay->layers;
        last.stage = sp_block_stage(lay, lay->layers);
        return last;
    }
    home = sp_chunk_owner(lay, 0, sp_globals(lay) - 1);
    last.op.chunk = home.chunk;
    last.stage = home.stage;
    return last;
}

bool sp_vocabulary_is_last(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    struct sp_dep last = sp_vocabulary_last(lay, (enum sp_pass)op->pass, op);

    return stage == last.stage && op->part == last.op.part && op->chunk == last.op.chunk;
}

int sp_vocabulary_root(const struct sp_layout *lay)
{
    return sp_vocabulary_last(lay, SP_F, &(struct sp_op){0}).stage;
}

int sp_vocabulary_first(const struct sp_layout *lay)
{
    return sp_vocabulary_base(lay)->facts.parts ? sp_block_stage(lay, 0)
                                                : sp_chunk_owner(lay, 0, 0).stage;
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

/* The ids of the head's ops, F and B, follow all others. */
static int ids(const struct sp_layout *lay)
{
    return sp_vocabulary_base(lay)->ids(lay) + 2 * lay->stages * lay->micro_batches * lay->slices;
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int at = op->pass == SP_B;

    if (op->part != SP_HEAD)
        return sp_vocabulary_base(lay)->id(lay, stage, op);
    if ((op->pass != SP_F && op->pass != SP_B) || op->chunk != 0 || stage < 0 ||
        stage >= lay->stages || op->mb < 0 || op->mb >= lay->micro_batches ||
        op->slice >= lay->slices)
        return -1;
    at = at * lay->stages + stage;
    at = at * lay->micro_batches + op->mb;
    return sp_vocabulary_base(lay)->ids(lay) + at * lay->slices + op->slice;
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
    int n;

    if (op->part == SP_HEAD && op->pass == SP_B)
        return heads(lay, SP_F, op, out);
    if (op->part == SP_HEAD) {
        out[0] = sp_vocabulary_last(lay, SP_F, op);
        return 1;
    }
    n = sp_vocabulary_base(lay)->deps(lay, stage, op, out);
    if (op->pass == SP_B && sp_vocabulary_is_last(lay, stage, op))
        n += heads(lay, SP_B, op, out + n);
    return n;
}

static void required(const struct sp_layout *lay, sp_need_fn need, void *arg)
{
    sp_vocabulary_base(lay)->required(lay, need, arg);
    for (int i = 0; i < lay->micro_batches * lay->slices; i++)
        for (int s = 0; s < lay->stages; s++) {
            struct sp_op unit = {.mb = i / lay->slices, .slice = (unsigned short)(i % lay->slices)};

            sp_need(need, arg, head(SP_F, s, &unit));
            sp_need(need, arg, head(SP_B, s, &unit));
        }
}

/* The base family's last op includes the head; here each stage has a share of that cost, a third of
 * it in the forward. */
static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    const struct sp_family *base = sp_vocabulary_base(&plan->layout);
    double share = sp_layerwise_head_cost(plan, costs, op) / plan->layout.stages;

    if (op->part == SP_HEAD)
        return op->pass == SP_F ? share / 3 : 2 * share / 3;
    return base->facts.parts ? base->cost(plan, costs, stage, op)
                             : sp_layerwise_layers_cost(plan, costs, stage, op);
}

static double again(const struct sp_plan *plan, const struct sp_costs *costs,
                    const struct sp_op *op)
{
    return op->part == SP_HEAD ? 0 : sp_vocabulary_base(&plan->layout)->again(plan, costs, op);
}

/* The head's statistics and gradients arrive independently of what ops send each other, and so does
 * its input, which may be needed in another order than it is made. The base family's streams have
 * smaller numbers. */
static int stream(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    const struct sp_family *base = sp_vocabulary_base(lay);
    enum { STATISTICS = SP_MAX_SIZE, GRADIENTS, INPUTS };

    if (op->part == SP_HEAD)
        return op->pass == SP_B ? STATISTICS : INPUTS + op->mb * lay->slices + op->slice;
    if (op->pass == SP_B && sp_vocabulary_is_last(lay, stage, op))
        return GRADIENTS;
    return base->lowers->stream ? base->lowers->stream(lay, stage, op) : 0;
}

/* ---- attention-parallel ---------------------------------------------------------------------- */

static int check_parts(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_family_attention_parallel.check(lay, why, n);

    return err ? err : check(lay, why, n);
}

static int place_parts(const struct sp_layout *lay, const struct sp_schedule_def *def,
                       struct sp_map **map, char *why, size_t n)
{
    int err = sp_family_attention_parallel.place(lay, def, map, why, n);

    if (!err)
        (*map)->base = &sp_family_attention_parallel;
    return err;
}

/* Unlike in the base family, the last block's output is needed in the forward. */
static int work_of_parts(const struct sp_plan *plan, const struct sp_shape *sh,
                         const struct sp_op *op, struct sp_op_work *work)
{
    int n;

    if (op->part == SP_HEAD) {
        work->head_share = true;
        return 1;
    }
    n = sp_family_attention_parallel.work(plan, sh, op, work);
    for (int i = 0; i < n; i++) {
        work[i].head_norm = work[i].to_head;
        work[i].head = work[i].to_head = false;
    }
    return n;
}

static int64_t stash_of_parts(const struct sp_plan *plan, const struct sp_shape *sh,
                              enum sp_recompute recompute, int stage, const struct sp_op *op,
                              int64_t *head)
{
    if (op->part != SP_HEAD)
        return sp_parts_stash(plan, sh, recompute, stage, op, head);
    return *head = 0;
}

/* ---- the families --------------------------------------------------------------------------- */

#define OPS                                                                                        \
    .name = "vocabulary-parallel", .facts.post_validates = true,                                   \
    .insert_ops = sp_vocabulary_insert_ops, .id = id, .ids = ids, .deps = deps,                    \
    .required = required, .cost = cost, .again = again, .lowers = &lowers
#define CHUNKS                                                                                     \
    .facts.layers = SP_LAYERS_MAYBE_NONE, .facts.pairs = true, .facts.prices_head = true,          \
    .facts.by_layer = true, .check = check, .place = sp_layerwise_place,                           \
    .facts.groups = SP_GROUP_ALL, .foreign = sp_layerwise_foreign, OPS

static const struct sp_lowerer lowers = {.stream = stream,
                                         .begin = sp_vocabulary_lower_begin,
                                         .lower = sp_vocabulary_lower,
                                         .end = sp_vocabulary_lower_end};

static const struct sp_family whole = {CHUNKS};
static const struct sp_family slices = {.facts.slices = true, CHUNKS};
static const struct sp_family parts = {.facts.slices = true,
                                       .facts.parts = true,
                                       .facts.by_layer = true,
                                       .kind = sp_parts_kind,
                                       .groups = sp_parts_groups,
                                       .check = check_parts,
                                       .place = place_parts,
                                       .refuse = sp_parts_refuse,
                                       .work = work_of_parts,
                                       .owners = &sp_parts_owners,
                                       .stash = stash_of_parts,
                                       OPS};

const struct sp_family *sp_vocabulary_variant(const struct sp_layout *lay,
                                              const struct sp_family *family)
{
    bool replaced = family == &sp_family_layerwise || family == &sp_family_subsequence ||
                    family == &sp_family_attention_parallel;

    if (!replaced || !lay->vocabulary_parallel)
        return family;
    return family->facts.parts ? &parts : family->facts.slices ? &slices : &whole;
}
