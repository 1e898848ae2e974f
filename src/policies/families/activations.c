#include "policies/families/activations.h"
#include "policies/lowering/parking.h"
#include <stdlib.h>

bool sp_op_releases(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    if (op->part == SP_HEAD)
        return false;
    if (op->pass == SP_W)
        return true;
    return op->pass == SP_B &&
           !(plan->split && plan->deferred[plan->family->id(&plan->layout, stage, op)]);
}

static int64_t layer_bytes(const struct sp_shape *sh, enum sp_recompute recompute, bool keeps_x,
                           bool sliced)
{
    int64_t bytes[SP_STASH_TENSORS], sum = 0;

    sp_stash_of_layer(sh, recompute, keeps_x, sliced, bytes);
    for (int k = 0; k < SP_STASH_TENSORS; k++)
        sum += bytes[k];
    return sum;
}

int64_t sp_stash_bytes(const struct sp_shape *sh, enum sp_recompute recompute, int every, int count,
                       bool last)
{
    int64_t bytes = last ? (int64_t)sp_shape_elem(sh) * sh->rows * sh->model.hidden : 0;

    for (int l = 0; l < count; l++)
        bytes += layer_bytes(sh, recompute, l % every == 0, false);
    return bytes;
}

/* The shape of a slice, or of the whole micro-batch if sequences are not cut. */
static struct sp_shape slice_of(const struct sp_plan *plan, const struct sp_shape *sh,
                                const struct sp_op *op)
{
    struct sp_shape part;
    int first, len;

    sp_plan_op_tokens(plan, sh->seq, op, &first, &len);
    sp_shape_slice(sh, first, len, &part);
    return part;
}

int64_t sp_stash_head_input(const struct sp_plan *plan, const struct sp_shape *part, int stage,
                            const struct sp_op *op)
{
    int g = sp_chunk_global(plan, stage, op->chunk);
    bool last =
        op->part == SP_HEAD ? plan->family->facts.head_op : g == sp_globals(&plan->layout) - 1;

    return last ? (int64_t)sp_shape_elem(part) * part->rows * part->model.hidden : 0;
}

/* Bytes kept of an op, *head of them for the head. */
static int64_t stash(const struct sp_plan *plan, const struct sp_shape *sh,
                     enum sp_recompute recompute, int every, int stage, const struct sp_op *op,
                     int64_t *head)
{
    const struct sp_shape part = slice_of(plan, sh, op);
    int64_t bytes = 0;
    int first, count;

    if (plan->family->stash)
        return plan->family->stash(plan, sh, recompute, stage, op, head);
    *head = sp_stash_head_input(plan, &part, stage, op);
    if (op->part == SP_HEAD)
        return 0;
    sp_chunk_layers(plan, sh->model.layers, stage, op->chunk, &first, &count);
    for (int l = 0; l < count; l++)
        bytes += layer_bytes(
            &part, sp_op_recompute(plan, op, sp_layer_recompute(plan, recompute, first + l)),
            l % every == 0, plan->layout.slices > 1);
    return bytes + *head;
}

int64_t sp_stash_of_op(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int every, int stage, const struct sp_op *op)
{
    int64_t head;

    return stash(plan, sh, recompute, every, stage, op, &head);
}

int64_t sp_stash_freed_by_op(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, int every, int stage,
                             const struct sp_op *op)
{
    int64_t head, all = stash(plan, sh, recompute, every, stage, op, &head), freed = 0;

    if (op->part == SP_HEAD)
        return head;
    if (op->pass == SP_B && !plan->family->facts.head_op)
        freed += head;
    if ((op->pass == SP_B || op->pass == SP_W) && sp_op_releases(plan, stage, op))
        freed += all - head;
    return freed;
}

/* Bytes of an activation of `all` bytes that are parked. */
static int64_t parked_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_parked *parked, int64_t all)
{
    int64_t bytes[SP_STASH_TENSORS], sum = 0;
    int first, count;

    if (!parked->tensors)
        return all;
    sp_part_layers(plan, sh->model.layers, sp_globals(&plan->layout), parked->at, &first, &count);
    for (int i = 0; i < count; i++) {
        sp_parked_layer(plan->parking, parked, sh,
                        sp_layer_recompute(plan, plan->parking->recompute, first + i), i, bytes);
        for (int k = 0; k < SP_STASH_TENSORS; k++)
            sum += bytes[k];
    }
    return sum;
}

int64_t sp_stash_peak(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, int stage)
{
    struct {
        int64_t taken, freed; /* by an op of a class, when it starts and when it ends */
    } * stash;
    const struct sp_program *prog = &plan->programs[stage];
    const int *of = sp_op_classes_of(&plan->classes, stage);
    int first = plan->classes.first[stage], n = plan->classes.first[stage + 1] - first;
    int64_t live = 0, peak = 0, away = 0;

    stash = calloc((size_t)n + 1, sizeof *stash);
    if (!stash)
        abort(); /* as programs do */
    for (int c = 0; c < n; c++) {
        const struct sp_op *op = &prog->ops[plan->classes.example[first + c]];

        if (op->pass == SP_F)
            stash[c].taken = sp_stash_of_op(plan, sh, recompute, every, stage, op);
        stash[c].freed = sp_stash_freed_by_op(plan, sh, recompute, every, stage, op);
    }
    for (int i = 0; i < prog->n; i++) {
        const struct sp_parked *parked = sp_parked_at(plan->parking, stage, i);

        if (parked)
            away = parked_bytes(plan, sh, parked, stash[of[parked->leaves] - first].taken);
        if (parked && parked->returns == i)
            live += away;
        live += stash[of[i] - first].taken;
        peak = live > peak ? live : peak;
        live -= stash[of[i] - first].freed;
        if (parked && parked->leaves == i)
            live -= away;
    }
    free(stash);
    return peak;
}
