#include "policies/families/slice_buffers.h"

bool sp_slices_take_turns(const struct sp_plan *plan, const struct sp_shape *sh)
{
    const struct sp_family *family = plan->family;

    return !family->facts.parts && !family->shared && !family->facts.shares_attention &&
           sh->tensor <= 1;
}

void sp_memory_longest_slice(const struct sp_plan *plan, const struct sp_shape *sh,
                             struct sp_shape *slice)
{
    int most = 0;

    for (int k = 0; k < plan->layout.slices; k++) {
        int first, len;

        sp_plan_slice_tokens(plan, sh->seq, k, &first, &len);
        most = len > most ? len : most;
    }
    sp_shape_slice(sh, 0, most, slice);
}
