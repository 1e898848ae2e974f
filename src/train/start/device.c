/* --device: chooses cores or GPUs, and checks that the run fits the GPUs' memory. */
#include "train/start/device.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/cuda_memory.h"
#include "sinks/starpu/device_memory.h"
#include "sinks/starpu/runtime.h"
#include "policies/families/slice_buffers.h"
#include "sp_error.h"
#include "train/start/memory.h"
#include "transport/starpu_environment.h"
#include "transport/transport.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEAD_DIM = 256 };

int sp_train_find_gpus(const struct sp_trainer *t)
{
    return t->cfg.device == SP_TRAIN_CPU ? 0 : sp_cuda_devices(false);
}

bool sp_train_plans_gpus(const struct sp_trainer *t)
{
    if (t->cfg.dry_run && t->cfg.hardware && t->cfg.device != SP_TRAIN_CPU)
        return !sp_machine_is_cpu(&t->machine);
    return sp_train_find_gpus(t) > 0;
}

int sp_train_head_rows(const struct sp_trainer *t)
{
    if (t->cfg.logit_rows)
        return t->cfg.logit_rows;
    if (t->cfg.dry_run && t->cfg.hardware) /* planned for that machine */
        return sp_machine_head_rows(&t->machine, &t->model);
    return sp_train_find_gpus(t) ? sp_head_rows_of_gpu(&t->model) : 0;
}

/* NCCL moves data between GPUs, one a process. Returns why that is impossible here, or NULL. */
static const char *no_nccl(const struct sp_trainer *t, int devices)
{
    if (!t->place.gpus)
        return "stages on cores send over MPI; use --device cuda";
    if (t->place.gpus > 1)
        return "it wants one GPU a process: start as many processes as GPUs";
    if (t->place.world.node_size > devices && devices > 1)
        return "processes share a GPU: start as many processes as GPUs";
    return NULL;
}

static bool may_take_nccl(const struct sp_trainer *t)
{
    return t->cfg.transport == SP_TRAIN_TRANSPORT_AUTO || t->cfg.transport == SP_TRAIN_NCCL;
}

/* The bytes that may be planned of those that a GPU has free: libraries load into the rest. */
static int64_t budget(int64_t unused)
{
    const int64_t GiB = 1 << 30;

    return unused > 10 * GiB ? unused - GiB : unused / 10 * 9;
}

/* Bytes that the kernels of the k-th GPU of this process take in addition to tensors. */
static int64_t kernels_bytes(const struct sp_trainer *t, int k)
{
    struct sp_shape slice;

    sp_memory_longest_slice(&t->plan, &t->shape, &slice);
    return sp_cuda_kernels_bytes(t->place.gpu[k], &t->shape, slice.seq);
}

/* The bytes that may be planned of a GPU, before stages are placed; 0: not known. Several processes must get the same
 * result, so they take what their GPUs have, and not what is free. */
static int64_t early_budget(const struct sp_trainer *t, int gpu)
{
    int64_t total, unused;

    if (sp_cuda_memory(gpu, &total, &unused))
        return 0;
    return budget(t->world.size > 1 ? total : unused);
}

/* Assumes slices of an eighth of a sequence, the longest that a sequence of many slices would have. */
int64_t sp_train_expect_gpus(const struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;
    int devices = sp_train_find_gpus(t);
    struct sp_placement pl = {.world = t->world,
                              .pipelines = sp_train_pipelines(t),
                              .n_local = l->stages / sp_train_pipeline_size(t)};
    int64_t memory;

    if (!devices || pl.n_local == 0 || (int64_t)l->micro_batch_size * l->seq > INT32_MAX)
        return 0;
    sp_placement_use_gpus(&pl, devices);
    memory = early_budget(t, pl.gpu[0]);
    if (!memory)
        return 0;
    memory -= sp_cuda_kernels_bytes(pl.gpu[0], &t->shape, (t->shape.seq + 7) / 8);
    memory /= sp_stages_of_worker(&pl);
    return memory > 0 ? memory : 1;
}

int64_t sp_train_gpu_has(const struct sp_trainer *t)
{
    int devices = sp_train_find_gpus(t);
    struct sp_placement pl = {.world = t->world, .n_local = 1};

    if (!devices)
        return 0;
    sp_placement_use_gpus(&pl, devices);
    return early_budget(t, pl.gpu[0]);
}

/* Checks that a GPU runs our kernels, and products of --dtype. */
static int check_kernels(const struct sp_trainer *t, int gpu)
{
    char name[128];
    int err = sp_cuda_usable(gpu);

    if (err || t->cfg.dtype != SP_TRAIN_FP8 || sp_cuda_multiplies_fp8(gpu))
        return err;
    sp_cuda_name(gpu, name);
    return sp_error(ENOTSUP,
                    "--dtype fp8: GPU %d (%s) multiplies no fp8, which takes compute capability "
                    "8.9 or newer; use --dtype bf16, or --device cpu",
                    gpu, name);
}

int sp_train_choose_device(struct sp_trainer *t)
{
    struct sp_placement *pl = &t->place;
    const char *why;
    int64_t total, unused;
    int devices = sp_train_find_gpus(t), err = 0;

    if (!devices && t->cfg.device == SP_TRAIN_CUDA) {
        sp_cuda_devices(true); /* says why */
        return -ENODEV;
    }
    if (devices)
        sp_placement_use_gpus(pl, devices);
    if (devices && t->plan.updates_on_cores)
        sp_placement_add_cores(pl, t->cfg.threads);
    for (int i = 0; !err && i < pl->gpus; i++)
        err = check_kernels(t, pl->gpu[i]);
    if (!err && devices && t->model.head_dim > MOST_HEAD_DIM)
        err = sp_error(EINVAL,
                       "%s has heads of %d elements, the kernels of a GPU take at most %d; use "
                       "--device cpu",
                       t->model.name, t->model.head_dim, MOST_HEAD_DIM);
    why = no_nccl(t, devices);
    if (why && t->cfg.transport == SP_TRAIN_NCCL && pl->world.size > 1)
        return sp_error(EINVAL, "train: --transport nccl: %s", why);
    if (why && may_take_nccl(t))
        t->cfg.transport = SP_TRAIN_MPI;
    err = err ? err : sp_transport_use_starpu(t->cfg.transport == SP_TRAIN_STARPU);
    if (!err && devices)
        t->gpu_room =
            sp_cuda_memory(pl->gpu[0], &total, &unused) ? 0 : budget(unused) - kernels_bytes(t, 0);
    return err;
}

int64_t sp_train_gpu_bytes(const struct sp_trainer *t)
{
    int64_t sum = sp_train_planned_bytes(t);

    for (int k = 0; k < t->place.gpus; k++)
        sum += kernels_bytes(t, k);
    return sum;
}

/* The memory of the stages of this process that run on its k-th GPU. */
static struct sp_memory memory_of(const struct sp_trainer *t, const struct sp_memory *all, int k,
                                  int *first, int *last)
{
    struct sp_memory sum = {.workspace = kernels_bytes(t, k)};

    *first = *last = -1;
    for (int s = t->place.first_local; s < t->place.first_local + t->place.n_local; s++) {
        if (sp_stage_worker(&t->place, s) != k)
            continue;
        sum.states += all[s].states;
        sum.activations += all[s].activations;
        sum.workspace += all[s].workspace;
        *first = *first < 0 ? s : *first;
        *last = s;
    }
    return sum;
}

static int check_gpu(const struct sp_trainer *t, const struct sp_memory *all, int k)
{
    const double GiB = 1024.0 * 1024 * 1024;
    int64_t total, unused;
    int first, last, err = sp_cuda_memory(t->place.gpu[k], &total, &unused);
    struct sp_memory m = memory_of(t, all, k, &first, &last);

    if (err)
        return sp_error(-err, "cuda: GPU %d does not tell its memory", t->place.gpu[k]);
    if (sp_memory_sum(&m) <= budget(unused))
        return 0;
    return sp_error(ENOMEM,
                    "stages %d to %d need %.1f GiB of GPU %d (parameters and optimizer %.1f, "
                    "activations %.1f, workspace %.1f), which has room for %.1f of %.1f; try "
                    "--recompute, --offload, --logit-rows, shorter sequences, or more GPUs",
                    first, last, (double)sp_memory_sum(&m) / GiB, t->place.gpu[k],
                    (double)m.states / GiB, (double)m.activations / GiB, (double)m.workspace / GiB,
                    (double)budget(unused) / GiB, (double)total / GiB);
}

int sp_train_check_gpus(struct sp_trainer *t)
{
    struct sp_memory *all;
    int err;

    if (t->cfg.dry_run || !t->place.gpus)
        return 0;
    all = sp_train_memory(t);
    err = all ? 0 : -EINVAL;
    for (int k = 0; !err && k < t->place.gpus; k++)
        err = check_gpu(t, all, k);
    free(all);
    return err;
}

bool sp_train_runs_ahead(const struct sp_trainer *t)
{
    return t->place.gpus && !getenv("SP_SYNC");
}

/* Evictions and fetches take and free buffers all the time, so buffers come from pools if
 * drivers have them. CUDA does not open the memory of a pool to another process, which an MPI
 * that reads from GPUs needs. */
static bool has_pools(const struct sp_trainer *t)
{
    const char *direct = getenv("STARPU_MPI_GPUDIRECT");
    bool has = sp_train_evicts(t) && direct && !strcmp(direct, "0");

    for (int i = 0; has && i < t->place.gpus; i++)
        has = sp_cuda_has_pool(t->place.gpu[i]);
    return has;
}

/* The sum of --memory-limit over the stages of a GPU; 0: the GPU has no more than that. */
static int64_t limit_of(const struct sp_trainer *t)
{
    int64_t limit = (int64_t)t->cfg.layout.memory_limit * sp_stages_of_worker(&t->place);

    return sp_train_offloads(t) && limit < t->gpu_room ? limit : 0;
}

int sp_train_prepare_gpus(struct sp_trainer *t)
{
    static const char *const defaults[][2] = {
        {"STARPU_CUDA_PIPELINE", "4"}, /* tasks queued while one runs: as many as StarPU can */
        {"STARPU_SUBALLOCATOR", "0"},  /* pieces of 32 MiB would not be what was planned */
        {"STARPU_MINIMUM_CLEAN_BUFFERS", "0"}, /* no copies that nobody asked for */
        {"STARPU_TARGET_CLEAN_BUFFERS", "0"},
    };
    int64_t limit;
    int err = 0;

    if (may_take_nccl(t))
        sp_transport_prepare_nccl();
    for (size_t i = 0; !err && i < sizeof defaults / sizeof *defaults; i++)
        err = sp_starpu_environment_default(defaults[i][0], defaults[i][1]);
    if (!err && sp_train_evicts(t))
        err = sp_starpu_environment_default("STARPU_MPI_GPUDIRECT", "0");
    if (err)
        return err;
    /* StarPU keeps freed buffers for others of their size until this limit is reached. The plan
     * keeps the buffers in use within --memory-limit. If StarPU counts only those, as with
     * pools, its limit is for what the plan does not know. */
    t->gpu_pools = has_pools(t);
    limit = t->gpu_pools ? 0 : limit_of(t);
    limit = limit ? limit : t->gpu_room;
    if (limit > 0)
        sp_train_limit(t, 0, "STARPU_LIMIT_CUDA_MEM", limit);
    return 0;
}

static int start_pools(const struct sp_trainer *t)
{
    static const struct sp_vector_memory memory = {sp_cuda_take, sp_cuda_give};
    int err;

    if (t->gpu_pools) {
        err = sp_cuda_pools_start(limit_of(t));
        if (err)
            return err;
    }
    sp_vectors_on_gpus(true, t->gpu_pools ? &memory : NULL);
    return 0;
}

int sp_train_start_gpus(const struct sp_trainer *t)
{
    int err = sp_cuda_start();

    err = err ? err : start_pools(t);
    if (!err && may_take_nccl(t))
        err = sp_transport_use_nccl(sp_runtime_node(), t->place.gpu[0],
                                    t->cfg.transport == SP_TRAIN_NCCL);
    return err;
}

void sp_train_end_gpus(void)
{
    sp_vectors_on_gpus(false, NULL);
    sp_cuda_pools_stop();
}
