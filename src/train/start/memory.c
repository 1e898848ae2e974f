#include "train/start/memory.h"
#include "plan/memory.h"

struct sp_memory sp_train_memory(const struct sp_trainer *t, int stage)
{
    if (sp_train_offloads(t))
        return t->offload.memory[stage];
    return sp_memory_of_stage(&t->plan, &t->shape, t->recompute, t->every, stage);
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
