/*
 * The cost of each part of one micro-batch, by layer: the input of the planners of src/plan/. It is
 * estimated from the model's sizes here, or measured (src/plan/profile.c); planners do not know
 * which. All layers of a model are alike, so one set of times serves every layer.
 *
 * Unit: microseconds of one worker, for a whole sequence of every row of one micro-batch, while
 * nothing else runs. Planners only add and compare times, so any other unit does as well if all
 * fields share it; results come back in that unit.
 */
#ifndef SP_LAYER_COSTS_H
#define SP_LAYER_COSTS_H

#include "plan/cost/part_times.h"
#include "policies/simulation/costs.h"

struct sp_layer_costs {
    double embed_fwd_us, embed_bwd_us; /* on the first global stage, once a micro-batch */
    double pre_fwd_us;                 /* norm, QKV product */
    double attn_fwd_us;                /* attention */
    double post_fwd_us;                /* output product, norm, MLP */
    double bwd_us;                     /* input gradient of a layer whose forward kept everything */
    double wgrad_us;                   /* weight gradient of such a layer */
    double head_us; /* final norm, logits and loss, forward and backward: part of B, on the last
                     * global stage, once a micro-batch */

    /* By enum sp_recompute: the extra time of a layer's backward (input and weight gradient
     * together) to recompute what its forward did not keep. [SP_RECOMPUTE_NONE] is 0. */
    double recompute_us[SP_RECOMPUTE_MODES];
};

/* Forward of a layer. */
static inline double sp_layer_fwd_us(const struct sp_layer_costs *c)
{
    return c->pre_fwd_us + c->attn_fwd_us + c->post_fwd_us;
}

/* Backward of a layer: recompute, input gradient, weight gradient. */
static inline double sp_layer_bwd_us(const struct sp_layer_costs *c, enum sp_recompute mode)
{
    return c->recompute_us[mode] + c->bwd_us + c->wgrad_us;
}

/* Estimates times on one device of a machine, for planning before any measurement; sets every
 * field. */
void sp_layer_costs_estimate(const struct sp_machine *machine, const struct sp_shape *sh,
                             struct sp_layer_costs *costs);

/* Sets slow[stages] to how many times as long a layer takes on the devices of a stage as on the
 * machine's slowest device. `devices`: of a stage, all its members together. */
void sp_layer_slowness(const struct sp_machine *machine, const struct sp_shape *sh, int devices,
                       int stages, double *slow);

/* The costs, in milliseconds, at which an order is searched before anything was measured: those of
 * a mean stage and of a layer's parts, and of a message of `tensors` tensors of bsh numbers between
 * two nodes. */
struct sp_costs sp_search_costs(const struct sp_machine *machine, const struct sp_shape *sh,
                                int stages, enum sp_recompute recompute, int tensors);

#endif
