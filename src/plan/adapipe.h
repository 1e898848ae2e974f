/*
 * AdaPipe (Sun et al., ASPLOS 2024) chooses how many layers each stage of a 1F1B pipeline takes and
 * what each layer recomputes, so that a step is short and no stage exceeds its limit. Stage s
 * stashes min(p - s, m) micro-batches, so early stages recompute more and take fewer layers. Pure.
 *
 * As in the paper, a dynamic program over stages takes its costs from one inside a stage, the
 * cheapest mix of recompute modes that fits. All layers are alike, so the inner problem only
 * chooses how many layers of a stage use each mode; it is solved exactly by counting.
 *
 * The outer problem is solved exactly for a model of the step,
 *
 *     T ~ t_0 + ... + t_(p-1) + (m-1) max t_s       t_s: forward and backward of one micro-batch
 *
 * (warm-up and cool-down, and a steady phase as fast as the slowest stage). The list simulation of
 * 1F1B decides. It is often shorter than the model, because a slow stage hides the warm-up of the
 * stages after it, and a little longer if stages differ much. So the search starts from the best
 * partition for each max t_s and from the even one, shortens each in simulated time by moving
 * single layers, and takes the shortest.
 */
#ifndef SP_PLAN_ADAPIPE_H
#define SP_PLAN_ADAPIPE_H

#include "plan/cost/layer_costs.h"
#include "policies/plan.h"
#include <stdint.h>

/* Bytes that a stage holds in one worker's memory. */
struct sp_adapipe_memory {
    int64_t limit_bytes; /* of a stage; 0: none */

    /* Fixed bytes, whatever is chosen: of every stage; and of the first and last stage in addition
     * (embedding, head). */
    int64_t stage_bytes, first_bytes, last_bytes;
    int64_t tokens_bytes; /* of a micro-batch, on the first and on the last stage */
    int64_t layer_bytes;  /* weights, gradients and moments of a layer */

    /* One micro-batch, from forward to backward: a layer, by enum sp_recompute; the head. */
    int64_t stash_bytes[SP_RECOMPUTE_MODES];
    int64_t head_stash_bytes;

    /* Room to recompute in, by the set of modes that the layers of the stage use: bit j of the
     * index is mode j. A larger set never needs less. */
    int64_t workspace_bytes[1 << SP_RECOMPUTE_MODES];
};

/* Sets *mem close to what plan/memory.h counts for 1F1B on `stages` stages, with limit_bytes =
 * `limit`. 0, or the error of sp_plan_create. */
int sp_adapipe_memory_of(const struct sp_shape *sh, int stages, int64_t limit,
                         struct sp_adapipe_memory *mem);

struct sp_adapipe {
    int stages, layers, micro_batches;
    struct sp_layer_costs costs; /* of one micro-batch: its unit is that of the results */
    struct sp_adapipe_memory memory;
};

struct sp_adapipe_figures {
    double makespan_us; /* of the step, list-simulated, without communication and update */
    double model_us;    /* smallest modelled step of any choice that fits */
    int64_t peak_bytes; /* of the stage that holds most */
};

/*
 * counts[stages]: layers of each stage; mode[layers]: enum sp_recompute of each layer, the layers
 * of a stage that recompute most first.
 *
 * Guaranteed: no stage is above its limit; model_us is the minimum, and makespan_us at most that
 * of a choice that has it, and of the even partition with any choice of modes that fits.
 *
 * 0; or one line on stderr and -EINVAL: fewer layers than stages, or no choice fits (with the
 * smallest limit that works). Outputs set only on success; `figures` may be NULL.
 */
int sp_adapipe_choose(const struct sp_adapipe *in, int *counts, unsigned char *mode,
                      struct sp_adapipe_figures *figures);

/* Does the same for a plan of the schedule, against the bytes that its graph is counted to hold.
 * in->memory is only an estimate: the call raises it until the counted bytes keep to the limit. */
int sp_adapipe_plan(struct sp_adapipe *in, const struct sp_plan *plan, const struct sp_shape *sh,
                    int *counts, unsigned char *mode, struct sp_adapipe_figures *figures);

/* Gives a plan of the schedule such layers and modes, at the times that are estimated for the
 * machine, which has `limit` bytes for a stage. 0; or -ENOMEM, or -EINVAL as above. */
int sp_adapipe_take(struct sp_plan *plan, const struct sp_shape *sh,
                    const struct sp_machine *machine, int64_t limit);

/* The makespan of 1F1B without communication, as sp_listsim finds it: f[stages] and b[stages] are
 * the times of a forward and a full backward of one micro-batch; room[2 * stages] is scratch. */
double sp_1f1b_makespan(int stages, int micro_batches, const double *f, const double *b,
                        double *room);

/* The cheapest mix of modes of one stage with `count` layers that fits the limit. */
struct sp_adapipe_mix {
    double us;                 /* recompute time of a micro-batch; INFINITY: nothing fits */
    int64_t bytes;             /* that the stage holds */
    int n[SP_RECOMPUTE_MODES]; /* layers in each mode */
};

void sp_adapipe_cheapest(const struct sp_adapipe *in, int stage, int count,
                         struct sp_adapipe_mix *best);

/* The least that a stage with `count` layers holds, however much it recomputes. */
int64_t sp_adapipe_least_bytes(const struct sp_adapipe *in, int stage, int count);

#endif
