/*
 * Layerwise programs as actions. The output of a global stage goes to the stage of the next one,
 * the gradient of its input to the stage of the one before. If both are the same stage, nothing is
 * sent.
 *
 *   F(i,g,k):  RECV x(i,g-1,k)   RUN   SEND x(i,g,k)
 *   B(i,g,k):  RECV dx(i,g+1,k)  RUN   SEND dx(i,g,k)
 *
 * The sender frees a tensor after the receiver has it. So whoever takes its buffer next comes after
 * the receiver in the order of submission, and two processes cannot wait for each other's buffers.
 */
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/parking.h"
#include "policies/lowering/pipelines.h"

/* The tensor that an op of global stage g leaves: its output, or the gradient of its input. */
static struct sp_tensor_id result(const struct sp_op *op, int g)
{
    return sp_tensor_of(op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX, op, g);
}

/* The stage of global stage g in the op's pipe, -1 if there is no such global stage. */
static int stage_of(const struct sp_lowering *l, const struct sp_op *op, int g)
{
    const struct sp_layout *lay = &l->plan->layout;

    return g < 0 || g >= sp_globals(lay) ? -1
                                         : sp_chunk_owner(lay, sp_pipe_of_mb(lay, op->mb), g).stage;
}

/* The direction of a pass through the global stages; 0 for W and R, which send nothing. */
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

/* Frees the tensor of another global stage that the op was the last to read. */
void sp_layerwise_release(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    int g = sp_global_stage(&l->plan->layout, stage, op->chunk) - way(op);

    if (way(op) && stage_of(l, op, g) >= 0)
        sp_lower_free(l, stage, result(op, g));
}

/* The activations that a forward leaves to another stage. */
static struct sp_tensor_id parked(const struct sp_parked *p)
{
    return (struct sp_tensor_id){
        .kind = SP_TENSOR_STASH, .block = SP_CHUNK, .mb = p->mb, .at = p->at};
}

/* After an op: sends away what it parks, and asks for what the op after the next one reads. */
static void park(struct sp_lowering *l, int stage, int index)
{
    const struct sp_parking_stage *s = l->plan->parking ? &l->plan->parking->stage[stage] : NULL;

    for (int i = 0; s && i < s->n; i++) {
        const struct sp_parked *p = &s->unit[i];

        if (p->leaves == index) {
            sp_lower_send(l, stage, p->peer, parked(p), index);
            sp_lower_recv(l, stage, p->peer, parked(p), -1);
            sp_lower_free(l, stage, parked(p));
        }
        if (p->asked == index) {
            sp_lower_send(l, p->peer, stage, parked(p), -1);
            sp_lower_recv(l, p->peer, stage, parked(p), p->returns);
            sp_lower_free(l, p->peer, parked(p));
        }
    }
}

static void lower(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, index = l->order[i].index;
    const struct sp_op *op = sp_lowering_op(l, i);
    int n = op->overlap ? 2 : 1;

    for (int k = 0; k < n; k++)
        sp_layerwise_receive(l, stage, op + k, index + k);
    sp_lower_run(l, stage, index);
    for (int k = 0; k < n; k++)
        sp_layerwise_send(l, stage, op + k, index + k);
    for (int k = 0; k < n; k++) {
        sp_layerwise_release(l, stage, op + k);
        park(l, stage, index + k);
    }
}

/* ---- parameters that several stages hold ------------------------------------------------------- */

static void reduce(struct sp_lowering *l, enum sp_block_kind kind, int layer)
{
    struct sp_tensor_id t = {
        .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)kind, .mb = -1, .at = layer};
    int stages[SP_MAX_OWNERS];
    int n = sp_block_owners(l->plan, &l->shape->held, kind, layer, stages);
    int64_t bytes = sp_tensor_bytes(l->plan, l->shape, &t);

    for (int k = 0; n > 1 && k < n; k++)
        sp_lower_collective(l, SP_ACTION_REDUCE, stages[k], -1, t, n, stages, bytes);
}

void sp_replicas_lower(struct sp_lowering *l)
{
    const struct sp_model *m = l->shape ? &l->shape->held : NULL;

    for (int layer = -1; m && layer < m->layers; layer++)
        for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
            enum sp_block_kind k = (enum sp_block_kind)kind;

            if (sp_block_is_of_layer(k) == (layer >= 0) && sp_block_elements(m, k))
                reduce(l, k, layer);
        }
}

const struct sp_lowerer sp_layerwise_lowers = {.lower = lower, .end = sp_replicas_lower};
