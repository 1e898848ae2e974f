/*
 * What every layer does with its activations until their backward: it keeps them, they leave memory, or it computes them
 * again. Chosen together, for a limit of memory and by the predicted step (PipeOffload, Wan et al. 2025, chooses what
 * leaves; AdaPipe, Sun et al. 2024, what is computed again). Pure.
 */
#ifndef SP_PLAN_RECOMPUTE_H
#define SP_PLAN_RECOMPUTE_H

#include "offload/eviction.h"
#include "plan/offload/units.h"
#include "plan/predict.h"

struct sp_recompute_wish {
    struct sp_plan
        *plan; /* its `recompute` and `evictions` are used meanwhile, and NULL before and after */
    const struct sp_shape *shape;
    enum sp_offload_mode offload; /* whether anything may leave */
    enum sp_offload_keys keys;
    int64_t limit; /* bytes of a stage */
    const struct sp_machine *machine;
    int devices; /* of a stage */
    const int *worker, *process;
};

struct sp_recompute_chosen {
    enum sp_recompute mode; /* of the layers that compute again; SP_RECOMPUTE_NONE: none does */
    unsigned char
        *layer;  /* [layers] enum sp_recompute of each, as sp_plan.recompute; NULL: all keep all */
    int layers;  /* that compute again, of all stages */
    bool leaves; /* tensors leave memory */
    double step_ms; /* predicted */
    int tried;      /* ways that fit */
};

/*
 * Of each mode as many layers, evenly spread over those of a stage, as the stage needs to keep to the limit; and, where
 * tensors may leave, from none to all of every stage's, with what then leaves of the others. The shortest predicted step;
 * of equal ones that which computes least again. 0; -ENOMEM; or -EINVAL: nothing fits,
 * chosen->mode is the one that needs least for all layers.
 */
int sp_recompute_choose(const struct sp_recompute_wish *wish, struct sp_recompute_chosen *chosen);

#endif
