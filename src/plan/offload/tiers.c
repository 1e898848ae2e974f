#include "plan/offload/offload.h"
#include "policies/lowering/evictions.h"
#include "policies/lowering/parking.h"
#include "policies/lowering/tensor.h"

/* Bytes that all forwards of a stage keep. */
static int64_t kept_by_forwards(const struct sp_plan *plan, const struct sp_shape *sh,
                                enum sp_recompute recompute, int every, int stage)
{
    const struct sp_program *prog = &plan->programs[stage];
    int64_t sum = 0;

    for (int i = 0; i < prog->n; i++)
        if (prog->ops[i].pass == SP_F)
            sum += sp_stash_of_op(plan, sh, recompute, every, stage, &prog->ops[i]);
    return sum;
}

struct sp_tier_bytes sp_offload_tiers(const struct sp_plan *plan, const struct sp_shape *sh,
                                      enum sp_recompute recompute, int every, int stage)
{
    struct sp_plan whole = *plan;
    struct sp_tier_bytes t = {.kept = kept_by_forwards(plan, sh, recompute, every, stage)};

    whole.recompute = NULL;
    t.recomputed = kept_by_forwards(&whole, sh, SP_RECOMPUTE_NONE, 1, stage) - t.kept;
    for (int i = 0; plan->parking && i < plan->parking->stage[stage].n; i++) {
        const struct sp_parked *p = &plan->parking->stage[stage].unit[i];

        t.parked += sp_tensor_bytes(
            plan, sh, &(struct sp_tensor_id){.kind = SP_TENSOR_STASH, .mb = p->mb, .at = p->at});
    }
    for (int i = 0; plan->evictions && i < plan->evictions[stage].n; i++)
        t.evicted += plan->evictions[stage].leaving[i].bytes;
    t.kept -= t.parked + t.evicted;
    t.kept = t.kept > 0 ? t.kept : 0; /* but for the pages */
    return t;
}
