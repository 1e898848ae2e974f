/* --offload: plans evictions before the start, and again at measured rates; opens the tiers. */
#include "train/start/device.h"
#include "train/start/phases.h"
#include "sinks/starpu/cuda_memory.h"
#include "offload/host.h"
#include "policies/families/slice_buffers.h"
#include "plan/profile.h"
#include "offload/host_memory.h"
#include "plan/slices.h"
#include "sp_error.h"
#include "transport/transport.h"
#include "sinks/starpu/runtime.h"
#include <stdlib.h>
#include <string.h>

static bool has_empty_stage(const struct sp_plan *plan)
{
    for (int g = 0; plan->first_layer && g < sp_globals(&plan->layout); g++)
        if (plan->first_layer[g] == plan->first_layer[g + 1])
            return true;
    return false;
}

/* Refuses settings that do not go with --offload, and says why. */
static int check(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    const char *mode = a->layout.offload;

    if (strcmp(a->scheduler, "strict"))
        return sp_error(
            EINVAL, "train: --offload %s wants ops in their order: use --scheduler strict", mode);
    if (a->post_validation)
        return sp_error(EINVAL, "train: --offload %s is not available with --post-validation",
                        mode);
    if (sp_train_is_adapipe(t) || !strcmp(a->partition, "balanced"))
        return sp_error(EINVAL,
                        "train: --offload %s: layers that are dealt out by measured times are not "
                        "known early enough; give --partition a list",
                        mode);
    if (has_empty_stage(&t->plan))
        return sp_error(
            EINVAL,
            "train: --offload %s plans by layers, and --partition %s leaves a stage without "
            "any; give every stage 1 or more",
            mode, a->partition);
    if (sp_layout_flag(&t->plan.layout, "auto"))
        return sp_error(
            EINVAL,
            "train: --offload %s: an order that is searched again during the run changes "
            "what may leave; leave out auto",
            mode);
    return 0;
}

static int check_optimizer(const struct sp_trainer *t)
{
    const char *with = t->cfg.post_validation          ? "--post-validation"
                       : t->plan.family->facts.stashes ? t->plan.def->name
                                                       : NULL;

    if (t->cfg.layout.offload_optimizer && !sp_scheduler_follows(t->cfg.scheduler))
        return sp_error(EINVAL,
                        "train: --offload-optimizer wants blocks to return in order, which "
                        "--scheduler %s does not enforce; use strict or ready",
                        t->cfg.scheduler);
    if (t->cfg.layout.optimizer_device == SP_TRAIN_UPDATE_GPU && !sp_train_plans_gpus(t))
        return sp_error(EINVAL, "train: --optimizer-device gpu: this run has no GPU, its cores "
                                "update; use auto");
    return !t->cfg.layout.offload_optimizer || !with
               ? 0
               : sp_error(
                     EINVAL,
                     "train: --offload-optimizer is not available with %s, which updates blocks "
                     "before a step ends; leave it out",
                     with);
}

/* A stage's share of the memory that it computes in: its GPU's, or the machine's. */
static int64_t machine_share(const struct sp_trainer *t)
{
    int most = sp_stages_of_worker(&t->place);

    if (t->place.gpus)
        return t->gpu_room > most ? t->gpu_room / most : 1; /* 0 is no limit */
    return sp_host_memory_has(t->world.node_size).bytes / t->place.n_local;
}

/* Plans the evictions. If the user set no limit, `limit` is what the machine has; 0: no limit
 * counts. */
static int plan(struct sp_trainer *t, enum sp_offload_mode mode, int64_t limit,
                struct sp_tier_rates rates, struct sp_op_speed speed)
{
    bool early = speed.fwd_s <= 0;
    struct sp_offload_request want = {.mode = mode,
                                      .keys = (enum sp_offload_keys)t->cfg.layout.offload_keys,
                                      .limit = limit,
                                      .of_machine = !t->cfg.layout.memory_limit,
                                      .recompute = t->recompute,
                                      .every = t->every,
                                      .peers = early && t->cfg.layout.offload_peers,
                                      .machine = &t->machine,
                                      .devices = 1,
                                      .rates = rates,
                                      .speed = speed};
    int err;

    /* All processes must park alike, so this is chosen once, by the description that they share. */
    if (want.peers)
        want.speed = sp_offload_request(&(struct sp_op_terms){.machine = &t->machine, .devices = 1},
                                        &t->shape, mode, limit)
                         .speed;
    err = sp_offload_create(&t->plan, &t->shape, &want, &t->offload);

    return err ? err : sp_offload_apply(&t->offload, &t->shape, &t->plan);
}

/* Room for the optimizer's state of a stage, in whole pages. */
static int64_t state_bytes(const struct sp_trainer *t, int stage)
{
    int64_t bytes = sp_memory_evicted_states(&t->plan, &t->shape, stage);
    int64_t tensors = 3 * (SP_LAYER_BLOCKS * (int64_t)t->model.layers + SP_BLOCK_KINDS);

    return bytes ? bytes + tensors * SP_HOST_PAGE : 0;
}

/* Bytes of the file: the most that is evicted at once, and room for the gaps that sizes leave. */
static int64_t file_bytes(const struct sp_trainer *t)
{
    int64_t sum = 0;

    for (int k = 0; k < t->place.n_local; k++) {
        int stage = t->place.first_local + k;

        sum += sp_train_offloads(t) ? t->offload.evictions[stage].most_evicted : 0;
        sum += state_bytes(t, stage);
    }
    return sum + sum / 16;
}

/* Bytes of main memory for activations from GPUs: StarPU's own limit, or what is free. StarPU
 * sends those that do not fit, the least recently used first, on to disk. */
static int64_t host_room(const struct sp_trainer *t)
{
    const char *limit = getenv("STARPU_LIMIT_CPU_MEM");

    if (limit && atoll(limit) > 0)
        return (int64_t)atoll(limit) << 20;
    return sp_host_memory_has_free(t->world.node_size).bytes;
}

static int64_t largest_tensor(const struct sp_trainer *t)
{
    int64_t most = 0;

    for (int k = 0; sp_train_offloads(t) && k < t->place.n_local; k++) {
        const struct sp_eviction_plan *a = &t->offload.evictions[t->place.first_local + k];

        for (int i = 0; i < a->n_units * SP_UNIT_TENSORS; i++) {
            int64_t bytes = a->units[i / SP_UNIT_TENSORS].bytes[i % SP_UNIT_TENSORS];

            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* A few tensors on their way to disk are in main memory: two that come from the GPU, two that
 * are written or read. */
static int check_host(const struct sp_trainer *t, int64_t room)
{
    const double MiB = 1024 * 1024;
    int64_t tensor = largest_tensor(t);

    return room >= 4 * tensor
               ? 0
               : sp_error(ENOMEM,
                          "train: --offload %s: main memory has room for %.1f MiB of what leaves "
                          "the GPU, and four tensors of %.1f MiB are on their way to disk at once: "
                          "raise STARPU_LIMIT_CPU_MEM, or take more --slices",
                          t->cfg.layout.offload, (double)room / MiB, (double)tensor / MiB);
}

static int open_behind_host(struct sp_trainer *t)
{
    int64_t room = host_room(t);
    int err;

    if (file_bytes(t) <= room)
        return 0;
    err = check_host(t, room);
    if (err)
        return err;
    sp_train_limit(t, 1, "STARPU_LIMIT_CPU_MEM", room >> 20 << 20);
    return sp_disk_create(t->cfg.offload_dir, file_bytes(t), sp_transport_abort, &t->disk);
}

/* A disk behind main memory is slower than the plan assumes: this is said once. */
static int say_disk(const struct sp_trainer *t)
{
    const double GiB = 1024.0 * 1024 * 1024;
    struct sp_tier_rates rates;
    int64_t room = sp_runtime_room(SP_MAIN_MEMORY);
    int err = sp_disk_measure(t->disk, &rates);

    if (!err)
        sp_train_say(t,
                     "main memory has room for %.2f GiB of the %.2f that leave the GPUs of a "
                     "process: the rest goes to a file in %s, written at %.2f GB/s and read at "
                     "%.2f",
                     (double)room / GiB, (double)file_bytes(t) / GiB, t->cfg.offload_dir,
                     rates.write / 1e9, rates.read / 1e9);
    return err;
}

/* Opens the tier that activations are evicted to, and measures how fast it is. */
static int open_tier(struct sp_trainer *t)
{
    int node = t->disk ? sp_disk_register(t->disk) : 0;

    if (node < 0)
        return sp_error(ENOSPC, "StarPU has no memory node left for a disk: build it with a larger "
                                "--enable-maxnodes");
    if (t->place.gpus) {
        t->tier = SP_MAIN_MEMORY;
        if (t->disk && say_disk(t))
            return -EIO;
        return sp_cuda_measure_copies(t->place.gpu[0], &t->rates.write, &t->rates.read, NULL);
    }
    t->tier = (unsigned)node;
    return sp_disk_measure(t->disk, &t->rates);
}

int sp_train_offload_early(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    bool open = t->offloads == SP_OFFLOAD_ADAPTIVE && !a->layout.memory_limit;
    int64_t limit = open && !a->dry_run ? machine_share(t) : (int64_t)a->layout.memory_limit;
    int err;

    if (!sp_train_evicts(t))
        return 0;
    err = sp_train_offloads(t) ? check(t) : 0;
    err = err ? err : check_optimizer(t);
    /* Without a limit and without rates: plans the most that may be chosen once they are known. */
    if (sp_train_offloads(t))
        err = err ? err
                  : plan(t, open ? SP_OFFLOAD_FULL : t->offloads, limit, (struct sp_tier_rates){0},
                         (struct sp_op_speed){0});
    if (err || a->dry_run)
        return err;
    if (t->place.gpus)
        return open_behind_host(t);
    return sp_disk_create(a->offload_dir, file_bytes(t), sp_transport_abort, &t->disk);
}

/* ---- measured ------------------------------------------------------------------------- */

/* Tokens of a measurement: no more than a slice has, nor than the limit has room for. */
static int measured_length(const struct sp_trainer *t)
{
    enum { SHORT = 512, SHORTEST = 16 };
    int64_t limit = (int64_t)t->cfg.layout.memory_limit;
    struct sp_shape slice, one;
    int len;

    sp_memory_longest_slice(&t->plan, &t->shape, &slice);
    for (len = slice.seq < SHORT ? slice.seq : SHORT; limit && len > SHORTEST; len /= 2) {
        sp_shape_init(&one, &t->model, 1, len, 1);
        sp_shape_cut(&one, t->cfg.mlp_chunk, t->cfg.logit_rows);
        one.dtype = t->cfg.dtype;
        if (sp_profile_bytes(&one) <= limit)
            break;
    }
    return len;
}

/* Measures a layer of a short sequence and scales it by operations: long ones would take as long
 * as a step. */
static int measure_speed(struct sp_trainer *t, struct sp_op_speed *speed)
{
    struct sp_layer_costs costs;
    struct sp_slice_costs flops;
    int len = measured_length(t), err = 0;
    double one;

    if (t->world.rank == 0)
        err = sp_train_measure(t, 1, len, &costs);
    if (err)
        return err;
    if (t->world.rank == 0) {
        flops = sp_slice_flops(&t->shape);
        /* the cost of all members of a stage, which compute at once */
        one = sp_slice_cost(&flops, 0, len) * t->shape.context * t->shape.tensor;
        *speed = (struct sp_op_speed){1e-6 * sp_layer_fwd_us(&costs) / one,
                                      1e-6 * (costs.bwd_us + costs.wgrad_us) / one};
    }
    sp_transport_share(speed, sizeof *speed);
    return 0;
}

static bool exceeds_machine(const struct sp_trainer *t)
{
    int64_t most = 0;

    for (int s = 0; s < t->offload.stages; s++) {
        int64_t sum = sp_memory_sum(&t->offload.memory[s]);

        most = sum > most ? sum : most;
    }
    return most > machine_share(t);
}

/* With GPUs, reserves pinned memory of the host for what leaves them. */
static void reserve_host(const struct sp_trainer *t)
{
    int64_t sum = 0, room = host_room(t);
    int64_t unused = sp_host_memory_has_free(t->world.node_size).bytes;

    room = unused < room ? unused : room;
    for (int k = 0; t->place.gpus && k < t->place.n_local; k++)
        sum += t->offload.evictions[t->place.first_local + k].most_evicted;
    sp_host_reserve(sum < room ? sum : room);
}

int sp_train_offload_measured(struct sp_trainer *t)
{
    int64_t limit = (int64_t)t->cfg.layout.memory_limit;
    struct sp_tier_rates share;
    struct sp_op_speed speed;
    int err;

    if (!sp_train_evicts(t))
        return 0;
    err = open_tier(t);
    if (err || !sp_train_offloads(t))
        return err;
    err = measure_speed(t, &speed);
    if (err)
        return err;
    share =
        (struct sp_tier_rates){t->rates.write / t->place.n_local, t->rates.read / t->place.n_local};
    err = plan(t, t->offloads, limit, share, speed);
    if (!err && !limit && exceeds_machine(t))
        err = plan(t, t->offloads, machine_share(t), share, speed);
    sp_host_trim();
    t->resident_before = sp_host_resident();
    if (!err)
        reserve_host(t);
    return err;
}
