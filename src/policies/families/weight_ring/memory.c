#include "policies/families/activations.h"
#include "policies/families/families.h"
#include "policies/families/weight_ring/ring.h"
#include "policies/families/workers.h"
#include "policies/lowering/tensor.h"

/* Most layers whose B a worker has done and whose W it has not. */
static int64_t layers_between(const struct sp_plan *plan, const struct sp_shape *sh)
{
    int64_t live = 0, most = 0;

    for (int i = 0; i < plan->programs[0].n; i++) {
        const struct sp_op *op = &plan->programs[0].ops[i];
        int first, count;

        if (op->part != SP_CHUNK || op->pass == SP_F)
            continue;
        sp_chunk_layers(plan, sh->model.layers, 0, op->chunk, &first, &count);
        if (!sp_op_releases(plan, 0, op))
            live += count;
        most = live > most ? live : most;
        if (op->pass == SP_W)
            live -= count;
    }
    return most;
}

/* Whether a turn is one op, beside the head that comes with the last chunk: weights of one chunk, or a gradient. */
static bool is_one_by_one(const struct sp_ring *ring)
{
    return ring->first[ring->turns] - ring->rounds == ring->turns;
}

bool sp_ring_keeps_apart(const struct sp_plan *plan, const struct sp_shape *sh)
{
    return sp_rounds_gradients(plan, sh) || sp_ring_of(&plan->layout)->node > 1;
}

int64_t sp_ring_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                           int64_t x)
{
    int P = plan->layout.stages;
    int64_t most = sp_most_layers(plan, sh->model.layers, stage), layer, ends, norms;
    int64_t apart, gradients; /* of one worker alone; elements that one takes */
    const struct sp_ring *ring = sp_ring_of(&plan->layout);
    bool line = ring->layout == SP_RING_LINE, one = plan->split && is_one_by_one(ring);

    if (P == 1 && !plan->split && !line)
        return 4 * x;
    sp_worker_elements(plan, sh, &layer, &ends);
    norms = layers_between(plan, sh) *
            (int64_t)(2 * sp_block_elements(&sh->held, SP_BLOCK_NORM1) + sp_shape_gains(sh));
    apart = sp_in_f32(sh, sp_ring_keeps_apart(plan, sh) ? most * layer : 0);
    /* embedding and head whole, with their gradients, and what others send of these: of `ends` each */
    norms = sp_in_f32(sh, norms) + (P > 1 ? P * ends + sp_in_f32(sh, (2 * P + 1) * ends) : 0);
    gradients = sp_rounds_gradients(plan, sh) ? 1 : sp_in_f32(sh, 1);
    /* of either kind: the larger; of two flows of weights, where a turn has ops of both; and what is with its owner */
    if (line)
        return 4 * x + gradients * ((one ? 7 : 9) * most + 2) * layer + apart + norms;
    return 4 * x + (6 * most + gradients * (3 * most + 2)) * layer + apart + norms;
}
