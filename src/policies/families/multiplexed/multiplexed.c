/*
 * The subsequence family with multiplexed slices (policies/families/multiplexed/multiplex.h): ops name the global stage
 * whose layers they are, and a part of a slice of it, wherever they run. For micro-batch i, stage g, part k:
 *
 *   F(i,g,k) waits for those F(i,g-1,.) whose tokens it has, and for all parts of the slice before:
 *            keys and values
 *   B(i,g,k) for those B(i,g+1,.), for F(i,g,k), and for all parts of the slice after: gradients of its
 *            keys and values
 *
 * Parts of one slice are computed at the same time. Each needs the keys and values of the parts before it
 * layer by layer, so it begins with the one before it and not after it (backwards: after it).
 */
#include "policies/families/families.h"
#include "policies/families/multiplexed/memory.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/families/ownership.h"
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

    free(multiplex->part);
    free(multiplex->part_token);
    free(multiplex->copies);
    free(multiplex);
}

static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    struct sp_multiplex_cut *multiplex = calloc(1, sizeof *multiplex);
    int err =
        multiplex ? sp_map_create(lay, 1, def->layerwise.global_stage, NULL, map, why, n) : -ENOMEM;

    if (err) {
        free(multiplex);
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

static void required(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++)
        for (int g = 0; g < lay->stages; g++)
            for (int k = 0; k < sp_parts_of(lay, g); k++) {
                struct sp_dep f = at(lay, SP_F, i, g, k), b = at(lay, SP_B, i, g, k);

                need(arg, f.stage, &f.op);
                need(arg, b.stage, &b.op);
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

static int activations(const struct sp_layout *lay)
{
    return lay->stages * lay->slices;
}

/* Of a slice. */
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

/* Whether some global stage's part of the slice is shared by so many. */
static bool is_cut(const struct sp_layout *lay, int slice, int of)
{
    for (int g = 0; g < lay->stages; g++) {
        int first, last;

        sp_slice_stages(lay, g, slice, &first, &last);
        if (last - first + 1 == of)
            return true;
    }
    return false;
}

static int cut(struct sp_plan *plan,
               int (*token_at)(const void *costs, int first, int len, double share),
               const void *costs)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_multiplex_cut *multiplex = sp_multiplex_cut_of(lay);
    size_t n = (size_t)lay->slices * (size_t)(lay->stages + 1) * (size_t)(lay->stages + 1);

    free(multiplex->part_token);
    multiplex->part_token = calloc(n, sizeof *multiplex->part_token);
    if (!multiplex->part_token)
        return sp_error(ENOMEM, "no memory for parts of %d slices", lay->slices);
    for (int of = 1; of <= lay->stages; of++)
        for (int k = 0; k < lay->slices; k++) {
            int *at = &multiplex->part_token[(of * lay->slices + k) * (lay->stages + 1)];
            int first, len;

            sp_plan_slice_tokens(plan, 0, k, &first, &len);
            for (int j = 0; j <= of; j++) {
                at[j] = j == of ? first + len : token_at(costs, first, len, (double)j / of);
                if (j > 0 && at[j] <= at[j - 1] && is_cut(lay, k, of))
                    return sp_error(EINVAL,
                                    "slice %d of %d tokens cannot be shared out to %d stages: take "
                                    "longer slices or fewer stages",
                                    k, len, of);
            }
        }
    return 0;
}

const struct sp_family sp_family_multiplexed = {
    .name = "subsequence",
    .names_global = true,
    .partitions = true,
    .check = check,
    .place = place,
    .refuse = refuse,
    .id = id,
    .ids = ids,
    .deps = deps,
    .required = required,
    .cost = cost,
    .activations = activations,
    .size = size,
    .stream = stream,
    .parts_of = sp_parts_of,
    .part_tokens = part_tokens,
    .slice = slice,
    .cut = cut,
    .is_end = sp_every_stage,
    .travelling = sp_multiplexed_travelling,
    .for_others = sp_multiplexed_for_others,
    .apart = sp_multiplexed_apart,
    .lower_begin = sp_multiplexed_lower_begin,
    .lower = sp_multiplexed_lower,
    .lower_end = sp_multiplexed_lower_end,
};
