/*
 * Decides for every layer whether its activations stay in memory until the backward, are evicted,
 * or are recomputed. All are chosen together, for a memory limit and by the predicted step
 * (PipeOffload, Wan et al. 2025, chooses what to evict; AdaPipe, Sun et al. 2024, what to
 * recompute). Pure.
 */
#ifndef SP_PLAN_RECOMPUTE_H
#define SP_PLAN_RECOMPUTE_H

#include "plan/offload/offload.h"
#include "plan/predict.h"

struct sp_recompute_wish {
    struct sp_plan *plan; /* the search uses its `recompute` and `evictions`, which are NULL,
                          * and with `peers` its `parking` */
    const struct sp_shape *shape;
    enum sp_offload_mode offload; /* NONE: nothing may be evicted */
    enum sp_offload_keys keys;
    bool peers;    /* with `offload`, stages may park tensors on each other too */
    int64_t limit; /* bytes of a stage */
    const struct sp_machine *machine;
    int devices; /* of a stage */
    const int *worker, *process;
};

struct sp_recompute_chosen {
    enum sp_recompute mode; /* of the layers that recompute; SP_RECOMPUTE_NONE: none does */
    unsigned char
        *layer;     /* [layers] as sp_plan.recompute, the caller's; NULL: all keep everything */
    int layers;     /* that recompute, on all stages */
    bool leaves;    /* tensors are evicted */
    double step_ms; /* predicted */
    int tried;      /* choices that fit */
};

/*
 * Tries each mode with as many layers, evenly spread over those of a stage, as the stage needs to
 * keep to the limit. If tensors may be evicted, it also tries from none to all layers of every
 * stage, with evictions of the others. Takes the shortest predicted step; of equal ones, the one
 * that recomputes least. 0; -ENOMEM; or -EINVAL: nothing fits, and chosen->mode is the one that
 * needs least for all layers.
 */
int sp_recompute_choose(const struct sp_recompute_wish *wish, struct sp_recompute_chosen *chosen);

#endif
