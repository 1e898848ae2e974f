#include "plan/offload/offload.h"
#include "plan/cost/part_times.h"
#include "plan/offload/builder.h"
#include "plan/offload/pages.h"
#include "plan/slices.h"
#include "policies/lowering/evictions.h"
#include "policies/lowering/parking.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>

/* A stage whose layout is being chosen. */
struct trial {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_offload_request *want;
    int stage;
    struct sp_eviction_plan *a;
    int64_t least; /* bytes that it holds with all evicted that may leave */
};

/* Lays the stage out again so that keys and values of the first `keep` slices stay. 0 or
 * -ENOMEM. */
static int lay_out(struct trial *t, int keep)
{
    int err;

    sp_eviction_plan_free(t->a);
    err = sp_offload_units(t->plan, t->sh, t->want, keep, t->stage, t->a);
    if (!err)
        sp_peers_count(t->plan, t->sh, t->stage, t->a);
    t->least = err ? 0 : sp_eviction_plan_least(t->a);
    return err;
}

/* Finds the most slices, from the first on, whose keys and values can stay within a limit; the
 * first are read most often. The caller has checked that with none staying the limit holds. */
static int most_that_stay(struct trial *t, int64_t limit, int *most)
{
    int low = 0, high = t->plan->layout.slices, err = 0;

    while (!err && high - low > 1) {
        int middle = (low + high) / 2;

        err = lay_out(t, middle);
        *(t->least <= limit ? &low : &high) = middle;
    }
    *most = low;
    return err;
}

/* Lays the stage out with the right keys and values staying. `limit`: of activations, 0: none. 0 or
 * -ENOMEM. */
static int choose_keys(struct trial *t, int64_t limit)
{
    int all = t->plan->layout.slices, stay = all, err;
    int64_t staying;

    if (t->want->keys == SP_KEYS_LEAVE)
        return lay_out(t, 0);
    err = lay_out(t, all);
    if (err || sp_keys_are_counted(t->plan) || t->want->keys == SP_KEYS_STAY ||
        !sp_keys_may_leave(t->plan, t->sh) ||
        (t->want->mode == SP_OFFLOAD_ADAPTIVE && (!limit || t->least <= limit)) ||
        t->want->mode == SP_OFFLOAD_NONE)
        return err;
    staying = t->least;
    err = lay_out(t, 0);
    if (err || (t->want->mode == SP_OFFLOAD_FULL && t->least < staying))
        return err;
    if (t->want->mode == SP_OFFLOAD_ADAPTIVE && t->least < staying) {
        if (t->least > limit)
            return 0;
        err = most_that_stay(t, limit, &stay);
    }
    return err ? err : lay_out(t, stay);
}

/* Sets held[stages] to the memory of a run that evicts keys alone: its buffers are counted, as
 * stages hold keys of others. 0 or -errno. */
static int hold_without_keys(const struct sp_plan *plan, const struct sp_shape *sh,
                             const struct sp_offload_request *want, struct sp_offload *offload,
                             struct sp_memory *held)
{
    struct sp_plan evicts = *plan;
    int err = 0;

    evicts.evictions = NULL;
    for (int s = 0; !err && s < plan->layout.stages; s++) {
        int64_t least;

        err = sp_offload_units(plan, sh, want, 0, s, &offload->evictions[s]);
        if (!err)
            sp_eviction_plan_choose(&offload->evictions[s], SP_OFFLOAD_NONE, 0, want->rates,
                                    &least);
    }
    err = err ? err : sp_offload_apply(offload, sh, &evicts);
    err = err ? err
              : sp_memory_evicted(&evicts, offload->evictions, sh, want->recompute, want->every,
                                  held);
    sp_evictions_destroy(evicts.evictions, plan->layout.stages);
    return err;
}

/* Sets the memory of all stages besides activations. */
static int find_fixed(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_offload_request *want, struct sp_offload *offload)
{
    int stages = plan->layout.stages, err;
    struct sp_memory *held = calloc((size_t)stages, sizeof *held);
    struct sp_plan alone = *plan;

    if (!held)
        return -ENOMEM;
    alone.parking = NULL;        /* counted slot by slot */
    if (sp_weights_travel(plan)) /* weights that travel are not freed at once */
        err = sp_memory_of_plan(&alone, sh, want->recompute, want->every, held);
    else if (sp_keys_are_counted(plan) && want->keys == SP_KEYS_LEAVE &&
             sp_keys_may_leave(plan, sh))
        err = hold_without_keys(&alone, sh, want, offload, held);
    else
        err = sp_memory_freed(&alone, sh, want->recompute, want->every, held);
    for (int s = 0; !err && s < stages; s++) {
        held[s].workspace -= sp_keys_gradients_bytes(plan, sh, s);
        offload->memory[s] = sp_pages_fixed(plan, sh, s, &held[s]);
    }
    free(held);
    return err;
}

int sp_offload_try(const struct sp_plan *plan, const struct sp_shape *sh,
                   const struct sp_offload_request *want, struct sp_offload *offload,
                   struct sp_offload_lack *lack)
{
    int stages = plan->layout.stages, err = 0, lacks = 0;
    struct sp_plan parked = *plan;

    *lack = (struct sp_offload_lack){0};
    sp_offload_destroy(offload);
    offload->stages = stages;
    offload->evictions = calloc((size_t)stages, sizeof *offload->evictions);
    offload->memory = calloc((size_t)stages, sizeof *offload->memory);
    if (!offload->evictions || !offload->memory)
        err = -ENOMEM;
    err = err ? err : find_fixed(plan, sh, want, offload);
    if (!err && want->peers) {
        err = sp_peers_choose(plan, sh, want, offload->memory, &offload->parking);
        parked.parking = offload->parking;
    }
    for (int s = 0; !err && s < stages; s++) {
        struct sp_memory *m = &offload->memory[s];
        int64_t limit = sp_offload_room(want, m), least;
        struct trial trial = {&parked, sh, want, s, &offload->evictions[s], 0};

        err = choose_keys(&trial, limit);
        if (err)
            break;
        if (!sp_eviction_plan_choose(&offload->evictions[s], want->mode, limit, want->rates,
                                     &least)) {
            if (sp_memory_sum(m) + least > sp_memory_sum(&lack->memory) + lack->least)
                *lack = (struct sp_offload_lack){.stage = s, .memory = *m, .least = least};
            lacks++;
        }
        m->activations = offload->evictions[s].peak;
    }
    if (!err && lacks)
        err = -EINVAL;
    if (err)
        sp_offload_destroy(offload);
    return err;
}

struct sp_offload_request sp_offload_request(const struct sp_op_terms *terms,
                                             const struct sp_shape *sh, enum sp_offload_mode mode,
                                             int64_t limit)
{
    struct sp_slice_costs flops = sp_slice_flops(sh);
    double layer = sh->batch * sp_slice_cost(&flops, 0, sh->seq);
    struct sp_part_times p;

    sp_part_times(terms->machine, terms->devices, sh, &p);
    return (struct sp_offload_request){
        .mode = mode,
        .limit = limit,
        .recompute = terms->recompute,
        .every = terms->every,
        .machine = terms->machine,
        .devices = terms->devices,
        .rates = sp_offload_tier(terms->machine, terms->devices),
        .speed = {.fwd_s = (p.pre + p.attention + p.post) / layer,
                  .bwd_s = (p.pre_input + p.attention_input + p.post_input + p.qkv_weight +
                            p.post_weight) /
                           layer}};
}

int sp_offload_create(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_offload_request *want, struct sp_offload *offload)
{
    const double MiB = 1024 * 1024;
    struct sp_offload_lack lack;
    int err = sp_offload_try(plan, sh, want, offload, &lack);
    double others;

    if (!err && want->keys == SP_KEYS_LEAVE && !sp_keys_may_leave(plan, sh)) {
        sp_offload_destroy(offload);
        return sp_error(
            EINVAL,
            "--offload-keys leave: keys and values leave where one stage after the "
            "other reads them "
            "slice by slice: with 3 slices or more (sppo:multiplex: more than stages), not "
            "with slimpipe:exchange=on, a ring of --context-method, or --tensor-parallel with "
            "--context-parallel");
    }
    if (err == -ENOMEM)
        return sp_error(ENOMEM, "no memory to plan the activations of %d stages",
                        plan->layout.stages);
    if (!err)
        return 0;
    others = (double)(lack.memory.states + lack.memory.workspace);
    return sp_error(EINVAL,
                    "%s %.2f MiB: stage %d needs %.2f MiB with all activations away that may "
                    "leave (parameters and optimizer %.2f, activations that stay %.2f, workspace "
                    "%.2f); %s, take more --slices or try --recompute",
                    want->of_machine ? "this machine has for a stage" : "memory limit",
                    (double)want->limit / MiB, lack.stage,
                    ceil(100 * ((double)lack.least + others) / MiB) / 100,
                    (double)lack.memory.states / MiB, (double)lack.least / MiB,
                    (double)lack.memory.workspace / MiB,
                    want->of_machine ? "take more machines" : "raise the limit");
}

void sp_offload_destroy(struct sp_offload *offload)
{
    for (int s = 0; offload->evictions && s < offload->stages; s++)
        sp_eviction_plan_free(&offload->evictions[s]);
    free(offload->evictions);
    free(offload->memory);
    sp_parking_destroy(offload->parking);
    *offload = (struct sp_offload){0};
}

static int slice_of(const struct sp_plan *plan, const struct sp_op *op)
{
    return plan->family->shared ? plan->family->shared->slice(&plan->layout, op) : op->slice;
}

double sp_offload_ratio(const struct sp_plan *plan, const struct sp_eviction_plan *a, int stage,
                        int slice)
{
    const struct sp_program *prog = &plan->programs[stage];
    int64_t bytes = 0, leaving = 0;

    for (int i = 0; i < prog->n; i++) {
        const struct sp_op *op = &prog->ops[i];
        int first = a->activations_unit[sp_activations_of_op(plan, stage, op)];
        int slots = a->op_slots[i + 1] - a->op_slots[i];

        if (!sp_op_keeps_layers(op) || slice_of(plan, op) != slice)
            continue;
        for (int u = first; u < first + (op->part == SP_CHUNK ? slots / 2 : slots); u++) {
            bytes += sp_unit_may_leave(&a->units[u]) + sp_unit_parked(&a->units[u]);
            leaving += sp_unit_leaving(&a->units[u]) + sp_unit_parked(&a->units[u]);
        }
    }
    return bytes ? (double)leaving / (double)bytes : -1;
}
