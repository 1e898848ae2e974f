#include "policies/lowering/parking.h"
#include <stdlib.h>

void sp_parking_destroy(struct sp_parking *p)
{
    for (int s = 0; p && p->stage && s < p->stages; s++) {
        free(p->stage[s].unit);
        free(p->stage[s].tensors);
    }
    if (p) {
        free(p->stage);
        free(p->of);
    }
    free(p);
}

const struct sp_parked *sp_parked_at(const struct sp_parking *p, int stage, int index)
{
    const struct sp_parking_stage *s = p ? &p->stage[stage] : NULL;

    for (int i = 0; s && i < s->n; i++)
        if (s->unit[i].leaves == index || s->unit[i].returns == index)
            return &s->unit[i];
    return NULL;
}

void sp_parked_layer(const struct sp_parking *p, const struct sp_parked *parked,
                     const struct sp_shape *sh, enum sp_recompute mode, int i,
                     int64_t bytes[SP_STASH_TENSORS])
{
    sp_stash_of_layer(sh, mode, mode != SP_RECOMPUTE_FULL || i % p->every == 0, false, bytes);
    for (int k = 0; parked->tensors && k < SP_STASH_TENSORS; k++)
        bytes[k] = parked->tensors[i] >> k & 1 ? bytes[k] : 0;
}
