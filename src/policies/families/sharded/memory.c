#include "policies/families/activations.h"
#include "policies/families/families.h"
#include "policies/families/ownership.h"
#include "policies/families/workers.h"

int64_t sp_sharded_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                              int64_t x)
{
    int64_t P = plan->layout.stages, most = sp_most_layers(plan, sh->model.layers, stage), layer;
    int64_t ends;

    if (P == 1)
        return 4 * x;
    sp_worker_elements(plan, sh, &layer, &ends);
    return 4 * x + 2 * most * P * layer + P * ends +
           sp_in_f32(sh, 3 * most * P * layer + P * ends + (3 * most * (P - 1) + 2) * layer +
                             (P - 1 + 2) * ends);
}
