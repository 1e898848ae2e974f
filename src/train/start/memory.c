#include "train/start/memory.h"
#include "plan/memory.h"
#include "train/config.h"
#include "train/start/graph_config.h"

/* To sample: weights as products read them, the largest block once more on its way in, the keys and values of all
 * positions, and a forward. */
static struct sp_memory memory_of_inference(const struct sp_trainer *t)
{
    struct sp_memory m = sp_memory_of_stage(&t->plan, &t->shape, t->recompute, t->every, 0);
    int64_t elem = (int64_t)sp_shape_elem(&t->shape);
    uint64_t largest = 0;

    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        uint64_t n = sp_block_elements(&t->model, (enum sp_block_kind)kind);

        largest = n > largest ? n : largest;
    }
    m.states = (int64_t)sp_model_parameters(&t->model) * elem + 4 * (int64_t)largest;
    m.activations = (int64_t)t->model.layers * t->cfg.layout.seq * t->shape.kv_width * elem;
    return m;
}

struct sp_memory sp_train_memory(const struct sp_trainer *t, int stage)
{
    if (t->cfg.inference)
        return memory_of_inference(t);
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

int sp_train_count(const struct sp_trainer *t, int processes, struct sp_count *count)
{
    const struct sp_train_config *a = &t->cfg;
    const struct sp_graph_config cfg = sp_train_graph_config(t);
    const struct sp_count_steps steps = {
        .n = a->steps - t->first_step, .ahead = a->post_validation, .clips = a->clip > 0};

    return sp_count_stages(&cfg, &t->place, processes, &steps, count);
}
