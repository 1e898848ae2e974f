#include "plan/cost/layer_costs.h"
#include "plan/cost/part_times.h"

void sp_layer_costs_estimate(const struct sp_machine *machine, const struct sp_shape *sh,
                             struct sp_layer_costs *costs)
{
    struct sp_part_times t;

    sp_part_times(machine, 1, sh, &t);
    *costs = (struct sp_layer_costs){
        .embed_fwd_us = 1e6 * t.embed,
        .embed_bwd_us = 1e6 * t.embed_weight,
        .pre_fwd_us = 1e6 * t.pre,
        .attn_fwd_us = 1e6 * t.attention,
        .post_fwd_us = 1e6 * t.post,
        .bwd_us = 1e6 * (t.pre_input + t.attention_input + t.post_input),
        .wgrad_us = 1e6 * (t.qkv_weight + t.post_weight),
        .head_us = 1e6 * t.head,
    };
    for (int mode = 0; mode < SP_RECOMPUTE_MODES; mode++)
        costs->recompute_us[mode] =
            1e6 * (t.pre_again[mode] + t.attention_again[mode] + t.post_again[mode]);
}

void sp_layer_slowness(const struct sp_machine *machine, const struct sp_shape *sh, int devices,
                       int stages, double *slow)
{
    const struct sp_machine *before = NULL;
    struct sp_layer_costs all, here;

    sp_layer_costs_estimate(machine, sh, &all);
    for (int s = 0; s < stages; s++) {
        const struct sp_machine *m = sp_machine_of_devices(machine, (int64_t)s * devices, devices);

        if (m != before)
            sp_layer_costs_estimate(m, sh, &here);
        before = m;
        slow[s] = (sp_layer_fwd_us(&here) + sp_layer_bwd_us(&here, SP_RECOMPUTE_NONE)) /
                  (sp_layer_fwd_us(&all) + sp_layer_bwd_us(&all, SP_RECOMPUTE_NONE));
    }
}

struct sp_costs sp_search_costs(const struct sp_machine *machine, const struct sp_shape *sh,
                                int stages, enum sp_recompute recompute, int tensors)
{
    double layers = (double)sh->model.layers / stages;
    double bytes = (double)tensors * (double)sp_shape_elem(sh) * sh->rows * sh->model.hidden;
    struct sp_layer_costs c;

    sp_layer_costs_estimate(machine, sh, &c);
    return (struct sp_costs){
        .f = 1e-3 * (layers * sp_layer_fwd_us(&c) + c.embed_fwd_us / stages),
        .b = 1e-3 * (layers * (c.bwd_us + c.recompute_us[recompute]) + c.head_us / stages),
        .w = 1e-3 * (layers * c.wgrad_us + c.embed_bwd_us / stages),
        .comm = 1e3 * sp_link_s(&machine->network, bytes),
        .parts = {.pre = 1e-3 * c.pre_fwd_us,
                  .attn = 1e-3 * c.attn_fwd_us,
                  .post = 1e-3 * c.post_fwd_us,
                  .backward = (c.bwd_us + c.wgrad_us) / sp_layer_fwd_us(&c),
                  .again = !sp_stash_keeps(recompute, SP_STASH_PRE)}};
}
