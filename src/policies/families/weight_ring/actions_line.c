/*
 * Weights and gradients down the line of workers as actions; line.h says who gets what from whom.
 *
 *   SEND(source) RECV weights, SEND(before) RECV gradient   RUN
 *                                     at the end of a journey: SEND, RECV(owner) and add
 *
 * The result of an op is sent when the op that needs it is submitted. Nothing is sent to ops that
 * were not submitted, so a step that has begun can be undone.
 */
#include "policies/families/weight_ring/actions.h"
#include "policies/families/weight_ring/line.h"

/* The weights that an op computes with, and the gradient that it adds to; they are the same for a
 * round's ops on all workers. */
static struct sp_tensor_id weights_of(const struct sp_lowering *l, const struct sp_op *op)
{
    return (struct sp_tensor_id){.kind = op->pass == SP_F ? SP_TENSOR_W : SP_TENSOR_WB,
                                 .mb = op->mb / l->plan->layout.stages,
                                 .at = op->chunk};
}

static struct sp_tensor_id gradient_of(const struct sp_lowering *l, int worker,
                                       const struct sp_op *op)
{
    return sp_line_gradient(&l->plan->layout, worker, op->mb, op->chunk);
}

static int source_of(const struct sp_lowering *l, int worker, int chunk)
{
    return sp_line_source(sp_lowering_ring(l), worker, chunk);
}

/* Brings weights for an op. A worker that received them frees them when no other worker needs them
 * from it. */
static void bring(struct sp_lowering *l, int worker, struct sp_tensor_id w, int index)
{
    int from = source_of(l, worker, w.at);

    if (from == worker)
        return;
    sp_lower_send(l, from, worker, w, -1);
    sp_lower_recv(l, from, worker, w, index);
    if (from != sp_ring_owner(sp_lowering_ring(l), w.at))
        sp_lower_free(l, from, w);
}

/* Frees the weights after the op, if no other worker gets them from this one. */
static void leave(struct sp_lowering *l, int worker, int workers, struct sp_tensor_id w)
{
    bool wanted = worker + 1 < workers && source_of(l, worker + 1, w.at) == worker;

    if (!wanted && source_of(l, worker, w.at) != worker)
        sp_lower_free(l, worker, w);
}

/* Passes on the gradient to which the same op of an earlier worker has added. In the same node both
 * ops begin together, and this op needs the gradient only when it ends. */
static void go_on(struct sp_lowering *l, int from, int worker, const struct sp_op *op, int index)
{
    struct sp_tensor_id d = gradient_of(l, worker, op);
    struct sp_op left = *op;
    const struct sp_ring *ring = sp_lowering_ring(l);
    bool together = sp_ring_lag(ring, from) == sp_ring_lag(ring, worker);

    left.mb -= worker - from;
    sp_lower_send(l, from, worker, d, l->order[sp_lowering_position(l, from, &left)].index);
    sp_lower_recv(l, from, worker, d, together ? -1 : index);
    sp_lower_free(l, from, d);
}

static void bring_home(struct sp_lowering *l, int last, const struct sp_op *op, int index)
{
    struct sp_tensor_id d = gradient_of(l, last, op);
    int owner = sp_ring_owner(sp_lowering_ring(l), op->chunk);

    sp_lower_send(l, last, owner, d, index);
    sp_lower_recv(l, last, owner, d, -1);
    sp_lower_add(l, owner, d);
    sp_lower_free(l, owner, d);
    sp_lower_free(l, last, d);
}

void sp_ring_line_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    const struct sp_ring *ring = sp_lowering_ring(l);
    int worker = l->order[i].stage, index = l->order[i].index;
    int workers = sp_line_workers(&l->plan->layout, op->mb / l->plan->layout.stages);
    bool reads = sp_ring_wants_weights(op), adds = sp_ring_adds(l->plan, worker, op);
    bool travels = adds && worker != sp_ring_owner(ring, op->chunk);
    int before = travels ? sp_line_next(ring, worker, op->chunk, -1, workers) : -1;

    if (reads)
        bring(l, worker, weights_of(l, op), index);
    if (before >= 0)
        go_on(l, before, worker, op, index);
    sp_lower_run(l, worker, index);
    if (reads)
        leave(l, worker, workers, weights_of(l, op));
    if (travels && sp_line_next(ring, worker, op->chunk, 1, workers) < 0)
        bring_home(l, worker, op, index);
}
