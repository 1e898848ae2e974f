#include "train/start/memory.h"
#include "plan/memory.h"

void sp_train_shape(const struct sp_trainer *t, struct sp_shape *shape)
{
    const struct sp_train_config *a = &t->cfg;

    sp_shape_init(shape, &t->model, a->layout.micro_batch_size, a->layout.seq,
                  a->layout.micro_batches, a->mlp_chunk, a->logit_rows);
    shape->dtype = a->dtype;
}

struct sp_memory sp_train_memory(const struct sp_trainer *t, const struct sp_shape *shape,
                                 int stage)
{
    if (sp_train_offloads(t))
        return t->offload.memory[stage];
    return sp_memory_of_stage(&t->plan, shape, t->recompute, t->every, stage);
}

int64_t sp_train_planned_bytes(const struct sp_trainer *t)
{
    struct sp_shape shape;
    int64_t sum = 0;

    sp_train_shape(t, &shape);
    for (int k = 0; k < t->place.n_local; k++) {
        struct sp_memory m = sp_train_memory(t, &shape, t->place.first_local + k);

        sum += sp_memory_sum(&m);
    }
    return sum;
}
