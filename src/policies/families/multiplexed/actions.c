/*
 * Programs with multiplexed slices as actions. Every process goes through all ops in the same
 * order. The results of an op are sent and received at the op's place in it, once to each process
 * that needs them, for the first of its stages that does.
 *
 *   F(i,g,k):  RUN    keys and values of left slices to their owner; rows to the parts of stage g+1
 *   B(i,g,k):         gradients of keys and values of left slices from their owner
 *              RUN    rows of the gradient to the parts of stage g-1
 *
 * All parts of a slice are one unit: they exchange queries in each layer and hold shares of keys
 * (shared_slices.h). Shared weights arrive before an op, sums of weight gradients leave after it
 * (shared_weights.h).
 */
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/multiplexed/shared_weights.h"
#include "policies/families/multiplexed/shared_slices.h"
#include <limits.h>

static const struct sp_layout *layout(const struct sp_lowering *l)
{
    return &l->plan->layout;
}

/* ---- keys and values ------------------------------------------------------------------------ */

/* True if an op's keys and values are those of a left slice whose owner, in another process, has
 * later slices. */
static bool are_shared(const struct sp_lowering *l, int stage, const struct sp_op *op)
{
    const struct sp_layout *lay = layout(l);

    return sp_slice_phase(lay, op->chunk, sp_part_at(lay, op->chunk, op->slice).slice) == SP_LEFT &&
           sp_lowering_process(l, op->chunk) != sp_lowering_process(l, stage) &&
           lay->stages - 1 - op->chunk < lay->slices;
}

static struct sp_tensor_id of_op(enum sp_tensor_kind kind, const struct sp_op *op)
{
    return sp_tensor_of(kind, op, op->chunk);
}

static void share_keys(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    if (!are_shared(l, stage, op))
        return;
    sp_lower_send(l, stage, op->chunk, of_op(SP_TENSOR_KV, op), index);
    sp_lower_recv(l, stage, op->chunk, of_op(SP_TENSOR_KV, op), sp_owner_op(l, op));
    sp_lower_free(l, stage, of_op(SP_TENSOR_KV, op)); /* the op keeps them */
}

/* All backwards of the owner's own slices are done, so its part of these gradients is complete. */
static void collect_gradients(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    if (!are_shared(l, stage, op))
        return;
    sp_lower_send(l, op->chunk, stage, of_op(SP_TENSOR_DKV, op), sp_owner_op(l, op));
    sp_lower_recv(l, op->chunk, stage, of_op(SP_TENSOR_DKV, op), index);
    sp_lower_free(l, op->chunk, of_op(SP_TENSOR_DKV, op));
    sp_lower_free(l, op->chunk, of_op(SP_TENSOR_KV, op));
}

static void release_gradients(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    if (are_shared(l, stage, op))
        sp_lower_free(l, stage, of_op(SP_TENSOR_DKV, op));
}

/* ---- rows from stage to stage ---------------------------------------------------------------- */

/* The ops of a process that read an op's rows as parts of global stage `to`. */
struct readers {
    int stage; /* the first stage; -1: no op reads them */
    int index; /* its first such op, as a place in its program */
    int last;  /* the last op of all, as a place in the order */
};

static struct readers readers_of(const struct sp_lowering *l, const struct sp_op *writer, int to,
                                 int process)
{
    struct readers r = {-1, INT_MAX, -1};
    int first, last;

    sp_multiplexed_overlap(layout(l), writer->chunk, writer->slice, to, &first, &last);
    for (int k = first; k <= last; k++) {
        struct sp_op op = *writer;
        int stage = sp_part_at(layout(l), to, k).stage, place;

        if (sp_lowering_process(l, stage) != process)
            continue;
        op.chunk = to;
        op.slice = (unsigned short)k;
        place = sp_lowering_position(l, stage, &op);
        r.stage = r.stage < 0 ? stage : r.stage;
        if (stage == r.stage && l->order[place].index < r.index)
            r.index = l->order[place].index;
        r.last = place > r.last ? place : r.last;
    }
    return r;
}

/* Sends rows once to each other process. Parts are in stage order, stages in process order. */
static void send_rows(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    struct sp_tensor_id rows = of_op(op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX, op);
    int to = op->chunk + (op->pass == SP_F ? 1 : -1), here = sp_lowering_process(l, stage);
    int first, last;

    if (to < 0 || to >= layout(l)->stages)
        return;
    sp_multiplexed_overlap(layout(l), op->chunk, op->slice, to, &first, &last);
    first = sp_lowering_process(l, sp_part_at(layout(l), to, first).stage);
    last = sp_lowering_process(l, sp_part_at(layout(l), to, last).stage);
    for (int process = first; process <= last; process++) {
        struct readers r = readers_of(l, op, to, process);

        if (process == here || r.stage < 0)
            continue;
        sp_lower_send(l, stage, r.stage, rows, index);
        sp_lower_recv(l, stage, r.stage, rows, r.index);
    }
    if (here < first || here > last)
        sp_lower_free(l, stage, rows);
}

/* Frees the rows of which the op at place i was the last reader in its process. */
static void release_rows(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int from = op->chunk - (op->pass == SP_F ? 1 : -1), first, last;
    int here = sp_lowering_process(l, l->order[i].stage);

    if (from < 0 || from >= layout(l)->stages)
        return;
    sp_multiplexed_overlap(layout(l), op->chunk, op->slice, from, &first, &last);
    for (int k = first; k <= last; k++) {
        int stage = sp_part_at(layout(l), from, k).stage;
        struct sp_op writer = *op;
        struct readers r;

        writer.chunk = from;
        writer.slice = (unsigned short)k;
        r = readers_of(l, &writer, op->chunk, here);
        if (r.last == i)
            sp_lower_free(l, sp_lowering_process(l, stage) == here ? stage : r.stage,
                          of_op(op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX, &writer));
    }
}

void sp_multiplexed_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int n = l->plan->family->lowers->unit(l, i);

    for (int k = i; k < i + n; k++)
        sp_shared_weights_before(l, k);
    for (int k = i; k < i + n; k++)
        sp_key_shares_before(l, k);
    for (int k = i; k < i + n && op->pass == SP_B; k++)
        collect_gradients(l, l->order[k].stage, sp_lowering_op(l, k), l->order[k].index);
    if (n > 1)
        sp_shared_slice_lower(l, i, n);
    else
        sp_lower_run(l, l->order[i].stage, l->order[i].index);
    for (int k = i; k < i + n; k++) {
        const struct sp_op *of = sp_lowering_op(l, k);

        (op->pass == SP_F ? share_keys(l, l->order[k].stage, of, l->order[k].index)
                          : release_gradients(l, l->order[k].stage, of));
        sp_key_shares_after(l, k);
        send_rows(l, l->order[k].stage, of, l->order[k].index);
    }
    for (int k = i; k < i + n; k++) {
        release_rows(l, k);
        sp_shared_weights_after(l, k);
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

void sp_multiplexed_lower_end(struct sp_lowering *l)
{
    sp_shared_weights_end(l);
    sp_replicas_lower(l);
}
