#include "cli/reproduce/run.h"
#include <errno.h>
#include <math.h>

double sp_layer_forward_s(const struct sp_part_times *t)
{
    return t->pre + t->attention + t->post;
}

double sp_layer_backward_s(const struct sp_part_times *t)
{
    return t->pre_input + t->attention_input + t->post_input + t->qkv_weight + t->post_weight;
}

double sp_layer_again_s(const struct sp_part_times *t, enum sp_recompute recompute)
{
    return t->pre_again[recompute] + t->attention_again[recompute] + t->post_again[recompute];
}

double sp_layer_kept_bytes(const struct sp_shape *sh, enum sp_recompute recompute)
{
    int64_t kept[SP_STASH_TENSORS], sum = 0;

    sp_stash_of_layer(sh, recompute, true, false, kept);
    for (int i = 0; i < SP_STASH_TENSORS; i++)
        sum += kept[i];
    return (double)sum;
}

/* A micro-batch forwards and backwards through all layers on one device, embedding and head
 * included. */
static double compute(const struct sp_machine *machine, const struct sp_run *run,
                      const struct sp_shape *sh)
{
    struct sp_part_times t;
    double layer;

    sp_part_times(machine, run->devices, sh, &t);
    layer = sp_layer_forward_s(&t) + sp_layer_again_s(&t, run->recompute) + sp_layer_backward_s(&t);
    return run->model.layers * layer + t.embed + t.embed_weight + t.head;
}

int sp_zero3(const struct sp_run *run, struct sp_run_result *result)
{
    const struct sp_machine *machine = sp_run_machine(run);
    const double parameters = (double)sp_model_parameters(&run->model), n = run->stages;
    const struct sp_link *link;
    struct sp_shape sh;

    if (!machine)
        return -EINVAL;
    link = run->stages > machine->devices_per_node ? &machine->network : &machine->node;
    sh = sp_bf16_shape(&run->model, run->batch, run->seq, run->micro_batches);
    if (run->context > 1)
        sp_shape_context(&sh, run->context, run->context);
    *result = (struct sp_run_result){0};
    result->step_s =
        run->micro_batches * fmax(run->context, 1) / n *
            (compute(machine, run, &sh) + 3 * (n - 1) / n * 2 * parameters / link->bandwidth) +
        sp_update_time(machine, parameters / n);
    /* its shard with gradient, moments and the type of the run; two gathered layers; one layer at
     * work */
    result->memory_bytes =
        18 * parameters / n + run->model.layers * sp_layer_kept_bytes(&sh, run->recompute) +
        4 * parameters / run->model.layers + run->logit_bytes * sh.rows * run->model.vocab +
        sp_layer_kept_bytes(&sh, SP_RECOMPUTE_NONE);
    result->fits = result->memory_bytes <= (double)machine->memory_bytes;
    return 0;
}
