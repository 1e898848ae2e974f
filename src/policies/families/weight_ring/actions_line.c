/*
 * Weights and gradients down the line of workers as actions: an op computes with what the same op of the
 * worker before computed with. Worker 0 has weights from their owners and makes the gradients; the last
 * worker gives gradients to the owners, who add up those of all rounds.
 *
 *   op k of worker r > 0:  SEND(r-1) RECV w, dw   RUN
 *   of worker 0:           SEND(owner) RECV w     RUN
 *   of the last worker:                           RUN   SEND dw, RECV(owner) and add
 *
 * What an op leaves is sent when the op that wants it is submitted: nothing is on its way to ops that are
 * not, so a step that was begun can be undone.
 */
#include "policies/families/weight_ring/actions.h"

/* What an op computes with, and the gradient that it adds to; the same for the ops of a round of all
 * workers. */
static struct sp_tensor_id weights_of(const struct sp_lowering *l, const struct sp_op *op)
{
    return (struct sp_tensor_id){.kind = op->pass == SP_F ? SP_TENSOR_W : SP_TENSOR_WB,
                                 .mb = op->mb / l->plan->layout.stages,
                                 .at = op->chunk};
}

static struct sp_tensor_id gradient_of(const struct sp_lowering *l, const struct sp_op *op)
{
    return (struct sp_tensor_id){
        .kind = SP_TENSOR_D, .mb = op->mb / l->plan->layout.stages, .at = op->chunk};
}

/* What op `left` of the worker before left, or -1: what it received, for op `index` of worker `to`. */
static void hand_on(struct sp_lowering *l, int to, struct sp_tensor_id t, int left, int index)
{
    sp_lower_send(l, to - 1, to, t, left);
    sp_lower_recv(l, to - 1, to, t, index);
    sp_lower_free(l, to - 1, t);
}

/* The place of the same op in the program of the worker before. */
static int index_before(const struct sp_lowering *l, int worker, const struct sp_op *op)
{
    struct sp_op before = *op;

    before.mb--;
    return l->order[sp_lowering_position(l, worker - 1, &before)].index;
}

/* Weights of worker 0, from their owner, who keeps them. */
static void lend(struct sp_lowering *l, struct sp_tensor_id w, int index)
{
    int owner = sp_ring_owner(sp_lowering_ring(l), w.at);

    if (owner == 0)
        return;
    sp_lower_send(l, owner, 0, w, -1);
    sp_lower_recv(l, owner, 0, w, index);
}

static void bring_home(struct sp_lowering *l, int last, const struct sp_op *op, int index)
{
    struct sp_tensor_id d = gradient_of(l, op);
    int owner = sp_ring_owner(sp_lowering_ring(l), op->chunk);

    if (owner != last) {
        sp_lower_send(l, last, owner, d, index);
        sp_lower_recv(l, last, owner, d, -1);
    }
    sp_lower_add(l, owner, d);
    sp_lower_free(l, owner, d);
    if (owner != last)
        sp_lower_free(l, last, d);
}

void sp_ring_line_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int worker = l->order[i].stage, index = l->order[i].index, last = l->plan->layout.stages - 1;
    struct sp_tensor_id w = weights_of(l, op), d = gradient_of(l, op);
    bool reads = sp_ring_wants_weights(op), adds = sp_ring_adds(l->plan, worker, op);

    if (reads && worker > 0)
        hand_on(l, worker, w, -1, index);
    else if (reads)
        lend(l, w, index);
    if (adds && worker > 0)
        hand_on(l, worker, d, index_before(l, worker, op), index);
    sp_lower_run(l, worker, index);
    if (reads && worker == last)
        sp_lower_free(l, worker, w);
    if (adds && worker == last)
        bring_home(l, last, op, index);
}
