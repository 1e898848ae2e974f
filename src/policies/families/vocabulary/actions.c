/*
 * Vocabulary-parallel programs as actions: those of the layerwise ones (families/layerwise/actions.c), and for the head
 * of micro-batch i, slice k, whose input the stage r of the last global stage has:
 *
 *   F(i,last,k):  RUN   SEND n to every other stage
 *   L(i,k):       RECV n                       RUN   SEND stats(s) to every other stage
 *   bL(i,k):      RECV stats of all others     RUN   SEND dn(s) to r
 *   B(i,last,k):  RECV dn of all others        RUN
 *
 * As there, a tensor is freed where it came from when the last stage that it was sent to has received it: n with r's bL,
 * which comes after the L of all; statistics with the last bL of all stages. The table of the embedding is gathered
 * before the first op of the stage that embeds, and its gradient scattered when all ops have run.
 */
#include "policies/families/families.h"
#include "policies/families/replicas.h"
#include "policies/families/sharded/shards.h"
#include "policies/families/vocabulary/vocabulary.h"
#include <limits.h>

static struct sp_tensor_id tensor(enum sp_tensor_kind kind, const struct sp_op *op, int at)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = op->slice, .mb = op->mb, .at = at};
}

static struct sp_tensor_id input(const struct sp_lowering *l, const struct sp_op *op)
{
    return tensor(SP_TENSOR_N1, op, sp_globals(&l->plan->layout) - 1);
}

static int root_of(const struct sp_lowering *l)
{
    return sp_vocabulary_root(&l->plan->layout);
}

/* ---- ops of the head ------------------------------------------------------------------------ */

static void lower_forward(struct sp_lowering *l, int stage, int index, const struct sp_op *op)
{
    if (stage != root_of(l))
        sp_lower_recv(l, root_of(l), stage, input(l, op), index);
    sp_lower_run(l, stage, index);
    for (int s = 0; s < l->plan->layout.stages; s++)
        if (s != stage)
            sp_lower_send(l, stage, s, tensor(SP_TENSOR_STATS, op, stage), index);
}

/* Whether no stage has its own yet to come, in the order of submission. */
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
            sp_lower_recv(l, s, stage, tensor(SP_TENSOR_STATS, op, s), index);
    sp_lower_run(l, stage, index);
    if (stage != root_of(l))
        sp_lower_send(l, stage, root_of(l), tensor(SP_TENSOR_DN1, op, stage), index);
    sp_lower_free(l, stage, input(l, op));
    for (int s = 0; s < stages; s++)
        if (s != stage)
            sp_lower_free(l, stage, tensor(SP_TENSOR_STATS, op, s));
    for (int s = 0; s < stages && ends(l, i, op); s++)
        sp_lower_free(l, s, tensor(SP_TENSOR_STATS, op, s));
}

/* ---- ops of chunks ---------------------------------------------------------------------------- */

static bool is_last(const struct sp_lowering *l, int stage, const struct sp_op *op,
                    enum sp_pass pass)
{
    const struct sp_layout *lay = &l->plan->layout;

    return op->pass == pass && sp_global_stage(lay, stage, op->chunk) == sp_globals(lay) - 1;
}

static void send_input(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        if (s != stage)
            sp_lower_send(l, stage, s, input(l, op), index);
}

static void receive_gradients(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        if (s != stage) {
            sp_lower_recv(l, s, stage, tensor(SP_TENSOR_DN1, op, s), index);
            sp_lower_free(l, s, tensor(SP_TENSOR_DN1, op, s));
        }
}

static void release_gradients(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    for (int s = 0; s < l->plan->layout.stages; s++)
        sp_lower_free(l, stage, tensor(SP_TENSOR_DN1, op, s));
}

static void lower_chunks(struct sp_lowering *l, int stage, int index, const struct sp_op *op)
{
    int n = op->overlap ? 2 : 1;

    for (int k = 0; k < n; k++) {
        sp_layerwise_receive(l, stage, op + k, index + k);
        if (is_last(l, stage, op + k, SP_B))
            receive_gradients(l, stage, op + k, index + k);
    }
    sp_lower_run(l, stage, index);
    for (int k = 0; k < n; k++) {
        sp_layerwise_send(l, stage, op + k, index + k);
        if (is_last(l, stage, op + k, SP_F))
            send_input(l, stage, op + k, index + k);
    }
    for (int k = 0; k < n; k++) {
        sp_layerwise_release(l, stage, op + k);
        if (is_last(l, stage, op + k, SP_B))
            release_gradients(l, stage, op + k);
    }
}

void sp_vocabulary_lower(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, index = l->order[i].index;
    const struct sp_op *op = sp_lowering_op(l, i);

    if (index == 0 && stage == sp_home(&l->plan->layout, 0, 0).stage)
        sp_shards_lower(l, SP_ACTION_GATHER, stage, 0, SP_SHARDS_ENDS);
    if (op->part != SP_HEAD)
        lower_chunks(l, stage, index, op);
    else if (op->pass == SP_F)
        lower_forward(l, stage, index, op);
    else
        lower_backward(l, i, stage, index, op);
}

void sp_vocabulary_lower_end(struct sp_lowering *l)
{
    sp_shards_lower(l, SP_ACTION_SCATTER, sp_home(&l->plan->layout, 0, 0).stage, INT_MAX,
                    SP_SHARDS_ENDS);
    sp_replicas_lower(l);
}
