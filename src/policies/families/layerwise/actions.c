/*
 * Layerwise programs as actions. The output of a global stage goes to the stage of the next one, the
 * gradient of its input to the stage of the one before; where both are one stage, it stays.
 *
 *   F(i,g,k):  RECV x(i,g-1,k)   RUN   SEND x(i,g,k)
 *   B(i,g,k):  RECV dx(i,g+1,k)  RUN   SEND dx(i,g,k)
 *
 * A tensor that was sent is freed when it has been received: then whatever takes its buffer next comes after
 * the receiver in the order of submission, and two processes cannot wait for each other's buffers.
 */
#include "policies/families/families.h"
#include "policies/families/replicas.h"

/* The tensor that an op of global stage g leaves: its output, or the gradient of its input. */
static struct sp_tensor_id result(const struct sp_op *op, int g)
{
    return (struct sp_tensor_id){.kind = op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX,
                                 .slice = op->slice,
                                 .mb = op->mb,
                                 .at = g};
}

/* The stage of a global stage of the op's pipe, -1: there is no such global stage. */
static int stage_of(const struct sp_lowering *l, const struct sp_op *op, int g)
{
    const struct sp_layout *lay = &l->plan->layout;

    return g < 0 || g >= sp_globals(lay) ? -1
                                         : sp_chunk_owner(lay, sp_pipe_of_mb(lay, op->mb), g).stage;
}

/* Which way a pass goes through the global stages; W and R go nowhere. */
static int way(const struct sp_op *op)
{
    return op->pass == SP_F ? 1 : op->pass == SP_B ? -1 : 0;
}

void sp_layerwise_receive(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    int g = sp_global_stage(&l->plan->layout, stage, op->chunk) - way(op);
    int from = way(op) ? stage_of(l, op, g) : -1;

    if (from < 0 || from == stage)
        return;
    sp_lower_recv(l, from, stage, result(op, g), index);
    sp_lower_free(l, from, result(op, g));
}

void sp_layerwise_send(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    int g = sp_global_stage(&l->plan->layout, stage, op->chunk);
    int to = way(op) ? stage_of(l, op, g + way(op)) : -1;

    if (to >= 0 && to != stage)
        sp_lower_send(l, stage, to, result(op, g), index);
}

/* What the op was the last to read of other global stages. */
void sp_layerwise_release(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    int g = sp_global_stage(&l->plan->layout, stage, op->chunk) - way(op);

    if (way(op) && stage_of(l, op, g) >= 0)
        sp_lower_free(l, stage, result(op, g));
}

void sp_layerwise_lower(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, index = l->order[i].index;
    const struct sp_op *op = sp_lowering_op(l, i);
    int n = op->overlap ? 2 : 1;

    for (int k = 0; k < n; k++)
        sp_layerwise_receive(l, stage, op + k, index + k);
    sp_lower_run(l, stage, index);
    for (int k = 0; k < n; k++)
        sp_layerwise_send(l, stage, op + k, index + k);
    for (int k = 0; k < n; k++)
        sp_layerwise_release(l, stage, op + k);
}
