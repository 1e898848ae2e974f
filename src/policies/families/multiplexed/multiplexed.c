/*
 * The subsequence family with multiplexed slices (policies/families/multiplexed/multiplex.h). An op
 * names the global stage whose layers it computes and a part of one of its slices, wherever it
 * runs. For micro-batch i, stage g, part k:
 *
 *   F(i,g,k) waits for those F(i,g-1,.) whose tokens it has, and for all parts of the slice before:
 *            keys and values
 *   B(i,g,k) for those B(i,g+1,.), for F(i,g,k), and for all parts of the slice after:
 *            gradients of its keys and values
 *
 * The parts of a slice are computed at the same time. In a run they begin together, when all their
 * stages have reached the slice, as each has keys for the queries of others (key_shares.h):
 * run_deps. The data alone require less, and orders are judged by that: layer by layer a part
 * attends to the parts before it, so it begins with the previous part (in a backward: the next
 * part), not after it.
 */
#include "policies/families/families.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/families/multiplexed/shared_weights.h"
#include "policies/families/ownership.h"
#include "policies/lowering/lowering.h"
#include "policies/refuse.h"
#include "sp_error.h"
#include <inttypes.h>
#include <stdlib.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;
    int64_t ops = 0;
    int parts = 0;

    if (lay->stages > SP_MULTIPLEX_STAGES) {
        fit.stages = SP_MULTIPLEX_STAGES;
        return sp_refuse(lay, &fit, why, n, "with multiplex has at most %d stages, not %d",
                         SP_MULTIPLEX_STAGES, lay->stages);
    }
    if (lay->slices < lay->stages - 1 || lay->slices < 2) {
        fit.slices = lay->stages > 3 ? lay->stages - 1 : 2;
        return sp_refuse(lay, &fit, why, n,
                         "with multiplex wants at least %d slices on %d stages, not %d", fit.slices,
                         lay->stages, lay->slices);
    }
    for (int g = 0; g < lay->stages; g++) {
        ops += 2 * (int64_t)sp_parts_of(lay, g) * lay->micro_batches;
        parts = sp_parts_of(lay, g) > parts ? sp_parts_of(lay, g) : parts;
    }
    if (parts > UINT16_MAX || ops > SP_MAX_OPS)
        return sp_refuse(lay, lay, why, n,
                         "with multiplex makes %d parts of a stage and %" PRId64
                         " ops, at most %d and %d are possible; take fewer slices or micro-batches",
                         parts, ops, UINT16_MAX, SP_MAX_OPS);
    return 0;
}

static void destroy(void *state)
{
    struct sp_multiplex_cut *multiplex = state;

    sp_multiplex_turns_destroy(&multiplex->turns);
    free(multiplex->part);
    free(multiplex->part_token);
    free(multiplex->held);
    free(multiplex);
}

static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    struct sp_multiplex_cut *multiplex = calloc(1, sizeof *multiplex);
    int err = multiplex ? sp_multiplex_turns_create(lay, &multiplex->turns) : -ENOMEM;

    if (err == -EINVAL)
        snprintf(why, n, "has slices that wait for each other");
    err = err ? err : sp_map_create(lay, 1, def->layerwise.global_stage, NULL, map, why, n);
    if (err) {
        if (multiplex)
            destroy(multiplex);
        return err;
    }
    multiplex->part =
        calloc((size_t)lay->stages * (size_t)sp_part_stride(lay), sizeof *multiplex->part);
    if (multiplex->part)
        sp_multiplex_table(lay, multiplex->part);
    (*map)->state = multiplex;
    (*map)->destroy_state = destroy;
    return 0;
}

static int refuse(const struct sp_plan *plan, const struct sp_train_wish *wish)
{
    int p = plan->layout.stages;

    if (wish->post_validation)
        return sp_error(EINVAL, "train: --post-validation is not available for %s:multiplex",
                        plan->def->name);
    if (p - 1 + (p - 1) * (p - 1) > SP_MAX_SLICES)
        return sp_error(EINVAL, "train: %s:multiplex trains on at most 16 stages, not %d",
                        plan->def->name, p);
    for (int g = 0; g < p; g++)
        if (sp_parts_of(&plan->layout, g) > SP_MAX_SLICES)
            return sp_error(EINVAL,
                            "train: %d slices on %d stages are %d parts with multiplex, at most %d "
                            "are possible; take fewer --slices",
                            plan->layout.slices, p, sp_parts_of(&plan->layout, g), SP_MAX_SLICES);
    return 0;
}

static int ids(const struct sp_layout *lay)
{
    return 2 * lay->micro_batches * lay->stages * sp_part_stride(lay);
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    if ((op->pass != SP_F && op->pass != SP_B) || op->part != SP_CHUNK || op->mb < 0 ||
        op->mb >= lay->micro_batches || op->chunk < 0 || op->chunk >= lay->stages ||
        op->slice >= sp_parts_of(lay, op->chunk) ||
        sp_part_at(lay, op->chunk, op->slice).stage != stage)
        return -1;
    return (((op->pass == SP_B) * lay->micro_batches + op->mb) * lay->stages + op->chunk) *
               sp_part_stride(lay) +
           op->slice;
}

static struct sp_dep at(const struct sp_layout *lay, enum sp_pass pass, int mb, int g, int number)
{
    return (struct sp_dep){
        .stage = sp_part_at(lay, g, number).stage,
        .op = {.pass = (unsigned char)pass, .mb = mb, .chunk = g, .slice = (unsigned short)number}};
}

static int deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    enum sp_pass pass = op->pass == SP_F ? SP_F : SP_B;
    int g = op->chunk, before = pass == SP_F ? g - 1 : g + 1, way = pass == SP_F ? -1 : 1, n = 0;
    struct sp_slice_part p = sp_part_at(lay, g, op->slice);
    int other = p.slice + way, beside = p.part + way;

    (void)stage;
    if (pass == SP_B)
        out[n++] = at(lay, SP_F, op->mb, g, op->slice);
    if (before >= 0 && before < lay->stages) {
        int begin = sp_first_part(lay, before, p.slice), first, last;

        sp_parts_overlapping(p.part, p.of, sp_part_at(lay, before, begin).of, &first, &last);
        for (int k = first; k <= last; k++)
            out[n++] = at(lay, pass, op->mb, before, begin + k);
    }
    if (other >= 0 && other < lay->slices)
        for (int k = sp_first_part(lay, g, other); k < sp_first_part(lay, g, other + 1); k++)
            out[n++] = at(lay, pass, op->mb, g, k);
    if (beside >= 0 && beside < p.of) {
        out[n] = at(lay, pass, op->mb, g, op->slice + way);
        out[n++].beside = true;
    }
    return n;
}

/* ---- the order ------------------------------------------------------------------------------- */

/* The op that a stage runs just before its op on a slice; false: there is none. */
static bool op_before(const struct sp_layout *lay, int stage, const struct sp_op *op, int slice,
                      struct sp_dep *out)
{
    const struct sp_multiplex_turns *t = &sp_multiplex_cut_of(lay)->turns;
    int place = t->place[(stage * lay->stages + op->chunk) * lay->slices + slice];
    int mb = op->mb, before = op->pass == SP_F ? place - 1 : place + 1, g, k;
    enum sp_pass pass = op->pass == SP_F ? SP_F : SP_B;

    if (before < 0) { /* the last op of the micro-batch before */
        pass = SP_B;
        before = 0;
        mb--;
    } else if (before == t->n[stage]) {
        pass = SP_F;
        before = place;
    }
    if (mb < 0)
        return false;
    g = t->global[stage * sp_part_stride(lay) + before];
    k = t->slice[stage * sp_part_stride(lay) + before];
    *out = at(lay, pass, mb, g, sp_part_of_stage(lay, g, k, stage));
    return true;
}

/* The op itself, three parts of rows, and the other stages of the slice and of the one before
 * it. */
_Static_assert(2 * SP_MULTIPLEX_STAGES + 4 <= SP_MAX_DEPS, "an op waits for too much");

/* The parts of a slice go through their layers together: none begins before all its stages reach
 * the slice. */
static int run_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS])
{
    struct sp_slice_part p = sp_part_at(lay, op->chunk, op->slice);
    struct sp_dep all[SP_MAX_DEPS];
    int all_n = deps(lay, stage, op, all), n = 0;

    if (!sp_slice_is_shared(lay, op->chunk, p.slice)) {
        for (; n < all_n; n++)
            out[n] = all[n];
        return n;
    }
    for (int i = 0; i < all_n; i++)
        if (!all[i].beside)
            out[n++] = all[i];
    for (int s = stage - p.part; s < stage - p.part + p.of; s++)
        if (s != stage)
            n += op_before(lay, s, op, p.slice, &out[n]);
    return n;
}

/* Slice by slice, by rank. A part comes after the part with which it begins. */
static double turn(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    const struct sp_multiplex_turns *t = &sp_multiplex_cut_of(lay)->turns;
    struct sp_slice_part p = sp_part_at(lay, op->chunk, op->slice);
    int rank = t->rank[op->chunk * lay->slices + p.slice], all = lay->stages * lay->slices;
    bool back = op->pass == SP_B;

    (void)stage;
    return 2.0 * all * op->mb + (back ? 2 * all - 1 - rank : rank) +
           (double)(back ? p.of - 1 - p.part : p.part) / (p.of + 1);
}

/* The parts of a slice are one unit. */
static int unit(const struct sp_lowering *l, int i)
{
    const struct sp_layout *lay = &l->plan->layout;
    const struct sp_op *op = sp_lowering_op(l, i);

    return sp_part_at(lay, op->chunk, op->slice).of;
}

static void required(const struct sp_layout *lay, sp_need_fn need, void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++)
        for (int g = 0; g < lay->stages; g++)
            for (int k = 0; k < sp_parts_of(lay, g); k++) {
                sp_need(need, arg, at(lay, SP_F, i, g, k));
                sp_need(need, arg, at(lay, SP_B, i, g, k));
            }
}

static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    struct sp_slice_part p = sp_part_at(&plan->layout, op->chunk, op->slice);

    (void)stage;
    return sp_plan_slice_share(plan, p.slice) / p.of *
           (op->pass == SP_F ? costs->f : costs->b + costs->w);
}

/* A part counts as its share of a slice. */
static double size(const struct sp_layout *lay, const struct sp_op *op)
{
    return 1.0 / sp_part_at(lay, op->chunk, op->slice).of;
}

/* Messages of one op do not wait for those of another. */
static int stream(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    (void)stage;
    return id(lay, sp_part_at(lay, op->chunk, op->slice).stage, op);
}

static bool keeps_attention(const struct sp_layout *lay, const struct sp_op *op)
{
    return sp_slice_is_shared(lay, op->chunk, sp_part_at(lay, op->chunk, op->slice).slice);
}

/* ---- the tokens of a part ------------------------------------------------------------------ */

static int slice(const struct sp_layout *lay, const struct sp_op *op)
{
    return sp_part_at(lay, op->chunk, op->slice).slice;
}

static void part_tokens(const struct sp_plan *plan, int seq, const struct sp_op *op, int *first,
                        int *len)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_slice_part p = sp_part_at(lay, op->chunk, op->slice);
    const int *begin = sp_multiplex_cut_of(lay)->part_token;
    int whole, at;

    sp_plan_slice_tokens(plan, seq, p.slice, first, &whole);
    if (!begin) {
        at = (int)((int64_t)whole * p.part / p.of);
        *len = (int)((int64_t)whole * (p.part + 1) / p.of) - at;
        *first += at;
        return;
    }
    begin += (p.of * lay->slices + p.slice) * (lay->stages + 1) + p.part;
    *first = begin[0];
    *len = begin[1] - begin[0];
}

static const struct sp_lowerer lowers = {.run_deps = run_deps,
                                         .turn = turn,
                                         .unit = unit,
                                         .stream = stream,
                                         .begin = sp_shared_weights_begin,
                                         .lower = sp_multiplexed_lower,
                                         .end = sp_multiplexed_lower_end};
static const struct sp_shared_slices shared = {.parts_of = sp_parts_of,
                                               .part_tokens = part_tokens,
                                               .slice = slice,
                                               .keeps_attention = keeps_attention,
                                               .key_share = sp_key_share,
                                               .cut = sp_multiplex_cut_parts,
                                               .cut_like = sp_multiplex_cut_like};

const struct sp_family sp_family_multiplexed = {
    .name = "subsequence",
    .facts.names_global = true,
    .facts.every_end = true,
    .facts.by_layer = true,
    .facts.layers = SP_LAYERS_CHOSEN,
    .facts.groups = SP_GROUP_ALL,
    .check = check,
    .place = place,
    .refuse = refuse,
    .id = id,
    .ids = ids,
    .deps = deps,
    .required = required,
    .cost = cost,
    .size = size,
    .lowers = &lowers,
    .shared = &shared,
};
