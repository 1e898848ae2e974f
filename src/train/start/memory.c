#include "train/start/memory.h"
#include "plan/memory.h"

struct sp_memory sp_train_memory(const struct sp_trainer *t, int stage)
{
    if (sp_train_offloads(t))
        return t->offload.memory[stage];
    return sp_memory_of_stage(&t->plan, &t->shape, t->recompute, t->every, stage);
}

bool sp_train_fits(const struct sp_trainer *t, const struct sp_plan *plan)
{
    uint64_t limit = t->cfg.layout.memory_limit;
    struct sp_memory most;

    if (!limit)
        return true;
    sp_memory_fullest(plan, &t->shape, t->recompute, t->every, &most);
    return (uint64_t)sp_memory_sum(&most) <= limit;
}

int64_t sp_train_planned_bytes(const struct sp_trainer *t)
{
    int64_t sum = 0;

    for (int k = 0; k < t->place.n_local; k++) {
        struct sp_memory m = sp_train_memory(t, t->place.first_local + k);

        sum += sp_memory_sum(&m);
    }
    return sum;
}
