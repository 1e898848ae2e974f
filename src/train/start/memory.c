#include "train/start/memory.h"
#include "plan/memory.h"
#include "train/config.h"
#include "train/start/graph_config.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* Memory for sampling: weights as products read them, a second copy of the largest block while
 * it is read in, the keys and values of all positions, and a forward. */
static void add_inference(const struct sp_trainer *t, struct sp_memory *m)
{
    int64_t elem = (int64_t)sp_shape_elem(&t->shape);
    uint64_t largest = 0;

    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        uint64_t n = sp_block_elements(&t->model, (enum sp_block_kind)kind);

        largest = n > largest ? n : largest;
    }
    m->states = (int64_t)sp_model_parameters(&t->model) * elem + 4 * (int64_t)largest;
    m->activations = (int64_t)t->model.layers * t->cfg.layout.seq * t->shape.kv_width * elem;
}

static int take_memory(const struct sp_trainer *t, struct sp_memory *m)
{
    int err = 0;

    if (sp_train_offloads(t) && !t->cfg.inference)
        memcpy(m, t->offload.memory, (size_t)t->plan.layout.stages * sizeof *m);
    else
        err = sp_memory_of_plan(&t->plan, &t->shape, t->recompute, t->every, m);
    if (!err && t->cfg.inference)
        add_inference(t, m);
    return err;
}

struct sp_memory *sp_train_memory(const struct sp_trainer *t)
{
    struct sp_memory *m = calloc((size_t)t->plan.layout.stages, sizeof *m);

    SP_NEED(m, "no memory for what %d stages hold", t->plan.layout.stages);
    if (!take_memory(t, m))
        return m;
    free(m);
    return NULL;
}

bool sp_train_fits(const struct sp_trainer *t, const struct sp_plan *plan)
{
    uint64_t limit = t->cfg.layout.memory_limit;
    struct sp_memory most;

    if (!limit)
        return true;
    return !sp_memory_fullest(plan, &t->shape, t->recompute, t->every, &most, NULL) &&
           (uint64_t)sp_memory_sum(&most) <= limit;
}

int64_t sp_train_planned_bytes(const struct sp_trainer *t)
{
    struct sp_memory *m = sp_train_memory(t);
    int64_t sum = 0;

    for (int k = 0; m && k < t->place.n_local; k++)
        sum += sp_memory_sum(&m[t->place.first_local + k]);
    free(m);
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
