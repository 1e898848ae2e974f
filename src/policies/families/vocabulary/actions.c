/*
 * Vocabulary-parallel programs as actions: those of the base family, and the head's. The last op
 * before the head of micro-batch i, slice k, runs on stage r, which has the head's input h:
 *
 *   F(i,last,k):  RUN   SEND h to every other stage
 *   L(i,k):       RECV h                       RUN   SEND stats(s) to every other stage
 *   bL(i,k):      RECV stats of all others     RUN   SEND dh(s) to r
 *   B(i,last,k):  RECV dh of all others        RUN
 *
 * As in the base family, the sender frees a tensor when the last receiver has it: h with r's bL,
 * which comes after the L of all stages; statistics with the last bL of all stages. The embedding's
 * table is gathered before the first op of the stage that embeds, and its gradient is scattered
 * when all ops have run.
 */
#include "policies/families/families.h"
#include "policies/families/sharded/shards.h"
#include "policies/families/vocabulary/vocabulary.h"
#include <limits.h>

static struct sp_tensor_id input(const struct sp_op *op)
{
    return sp_tensor_of(SP_TENSOR_HEAD, op, -1);
}

static int root_of(const struct sp_lowering *l)
{
    return sp_vocabulary_root(&l->plan->layout);
}

/* ---- ops of the head ------------------------------------------------------------------------ */

static void send_to_others(struct sp_lowering *l, int stage, struct sp_tensor_id t, int index)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        if (s != stage)
            sp_lower_send(l, stage, s, t, index);
}

static void lower_forward(struct sp_lowering *l, int stage, int index, const struct sp_op *op)
{
    if (stage != root_of(l))
        sp_lower_recv(l, root_of(l), stage, input(op), index);
    sp_lower_run(l, stage, index);
    send_to_others(l, stage, sp_tensor_of(SP_TENSOR_STATS, op, stage), index);
}

/* True if all stages have had their op like this one by place i of the order of submission. */
static bool ends(const struct sp_lowering *l, int i, const struct sp_op *op)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        if (sp_lowering_position(l, s, op) > i)
            return false;
    return true;
}

static void lower_backward(struct sp_lowering *l, int i, int stage, int index,
                           const struct sp_op *op)
{
    int stages = l->plan->layout.stages;

    for (int s = 0; s < stages; s++)
        if (s != stage)
            sp_lower_recv(l, s, stage, sp_tensor_of(SP_TENSOR_STATS, op, s), index);
    sp_lower_run(l, stage, index);
    if (stage != root_of(l))
        sp_lower_send(l, stage, root_of(l), sp_tensor_of(SP_TENSOR_DHEAD, op, stage), index);
    sp_lower_free(l, stage, input(op));
    for (int s = 0; s < stages; s++)
        if (s != stage)
            sp_lower_free(l, stage, sp_tensor_of(SP_TENSOR_STATS, op, s));
    if (ends(l, i, op))
        for (int s = 0; s < stages; s++)
            sp_lower_free(l, s, sp_tensor_of(SP_TENSOR_STATS, op, s));
}

/* ---- the last op before the head ------------------------------------------------------------- */

static void receive_gradients(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        if (s != stage) {
            sp_lower_recv(l, s, stage, sp_tensor_of(SP_TENSOR_DHEAD, op, s), index);
            sp_lower_free(l, s, sp_tensor_of(SP_TENSOR_DHEAD, op, s));
        }
}

static void release_gradients(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        sp_lower_free(l, stage, sp_tensor_of(SP_TENSOR_DHEAD, op, s));
}

/* An op of the base family, or two that overlap. */
static void lower_base(struct sp_lowering *l, int i, int stage, int index, const struct sp_op *op)
{
    const struct sp_layout *lay = &l->plan->layout;
    int n = op->overlap ? 2 : 1;

    for (int k = 0; k < n; k++)
        if (op[k].pass == SP_B && sp_vocabulary_is_last(lay, stage, op + k))
            receive_gradients(l, stage, op + k, index + k);
    sp_vocabulary_base(lay)->lowers->lower(l, i);
    for (int k = 0; k < n; k++)
        if (sp_vocabulary_is_last(lay, stage, op + k) && op[k].pass == SP_F)
            send_to_others(l, stage, input(op + k), index + k);
        else if (sp_vocabulary_is_last(lay, stage, op + k) && op[k].pass == SP_B)
            release_gradients(l, stage, op + k);
}

int sp_vocabulary_lower_begin(struct sp_lowering *l)
{
    const struct sp_family *base = sp_vocabulary_base(&l->plan->layout);

    return base->lowers->begin ? base->lowers->begin(l) : 0;
}

void sp_vocabulary_lower(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, index = l->order[i].index;
    const struct sp_op *op = sp_lowering_op(l, i);

    if (index == 0 && stage == sp_vocabulary_first(&l->plan->layout))
        sp_shards_lower(l, SP_ACTION_GATHER, stage, 0, SP_SHARDS_ENDS);
    if (op->part != SP_HEAD)
        lower_base(l, i, stage, index, op);
    else if (op->pass == SP_F)
        lower_forward(l, stage, index, op);
    else
        lower_backward(l, i, stage, index, op);
}

void sp_vocabulary_lower_end(struct sp_lowering *l)
{
    const struct sp_layout *lay = &l->plan->layout;

    sp_vocabulary_base(lay)->lowers->end(l);
    sp_shards_lower(l, SP_ACTION_SCATTER, sp_vocabulary_first(lay), INT_MAX, SP_SHARDS_ENDS);
}
