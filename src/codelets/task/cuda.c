#include "codelets/task/cuda.h"
#include "codelets/task/codelet.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/attention/cudnn_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/pool.h"
#include "kernels/cuda/flash3/flash3.h"
#include "sp_atomic.h"

static struct worker {
    struct sp_cuda *cuda;
    cudaStream_t stream; /* of the kernels */
    cudaEvent_t queued;  /* all that a task queued */
    bool waits;          /* no task ends before its kernels any more */
} workers[STARPU_NMAXWORKERS];

static struct {
    struct sp_cuda_pool *pool;
    int64_t budget_bytes;
} pools[STARPU_MAXNODES]; /* by memory node */
static int64_t peak;

static struct worker *this_worker(void)
{
    return &workers[starpu_worker_get_id_check()];
}

static void start(void *arg)
{
    struct worker *w = this_worker();
    int *failed = arg, err;

    sp_cuda_must(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking), "a stream");
    sp_cuda_must(cudaEventCreateWithFlags(&w->queued, cudaEventDisableTiming), "an event");
    starpu_cuda_get_local_stream(); /* StarPU warns of workers that never ask for it */
    err =
        sp_cuda_create(starpu_worker_get_devid(starpu_worker_get_id_check()), w->stream, &w->cuda);
    if (err)
        __atomic_store_n(failed, err, __ATOMIC_RELAXED);
}

static void stop(void *arg)
{
    struct worker *w = this_worker();

    (void)arg;
    sp_cuda_destroy(w->cuda);
    cudaEventDestroy(w->queued);
    cudaStreamDestroy(w->stream);
    *w = (struct worker){0};
}

int sp_cuda_start(void)
{
    int failed = 0;

    starpu_execute_on_each_worker(start, &failed, STARPU_CUDA);
    return failed;
}

void sp_cuda_stop(void)
{
    starpu_execute_on_each_worker(stop, NULL, STARPU_CUDA);
}

bool sp_cuda_has_pool(int device)
{
    return sp_cuda_pool_supported(device);
}

static int gpus_of(int device[STARPU_MAXNODES])
{
    int n = 0;

    for (unsigned node = 0; node < starpu_memory_nodes_get_count(); node++)
        if (starpu_node_get_kind(node) == STARPU_CUDA_RAM)
            device[n++] = starpu_memory_node_get_devid(node);
    return n;
}

int sp_cuda_pools_start(int64_t budget_bytes)
{
    int device[STARPU_MAXNODES], n = gpus_of(device), err = 0;

    for (unsigned node = 0; !err && node < starpu_memory_nodes_get_count(); node++) {
        int64_t limit = (int64_t)starpu_memory_get_total(node);

        if (starpu_node_get_kind(node) != STARPU_CUDA_RAM)
            continue;
        limit = limit > 0 ? limit : INT64_MAX;
        pools[node].budget_bytes = budget_bytes && budget_bytes < limit ? budget_bytes : limit;
        err = sp_cuda_pool_create(starpu_memory_node_get_devid(node), device, n, &pools[node].pool);
    }
    if (err)
        sp_cuda_pools_stop();
    return err;
}

void sp_cuda_pools_stop(void)
{
    for (unsigned node = 0; node < STARPU_MAXNODES; node++) {
        sp_cuda_pool_destroy(pools[node].pool);
        pools[node].pool = NULL;
    }
}

/* StarPU has counted these bytes already. */
void *sp_cuda_take(unsigned node, size_t bytes)
{
    int64_t idle = pools[node].budget_bytes - (int64_t)starpu_memory_get_used(node);

    return sp_cuda_pool_take(pools[node].pool, bytes, idle > 0 ? (size_t)idle : 0);
}

void sp_cuda_give(unsigned node, void *memory, size_t bytes)
{
    sp_cuda_pool_give(pools[node].pool, memory, bytes);
}

bool sp_cuda_pin(void *memory, size_t bytes)
{
    bool pinned = cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess;

    if (!pinned)
        cudaGetLastError(); /* or the next kernel of this thread would have it */
    return pinned;
}

void sp_cuda_unpin(void *memory)
{
    if (cudaHostUnregister(memory) != cudaSuccess)
        cudaGetLastError();
}

/*
 * A GPU that is short of memory has buffers moved, which StarPU begins once the tasks that write them have ended for
 * it: what is still queued would be lost. No task is to end early unless all that is planned leaves a sixth of what
 * buffers may have (train/start/device.h). Where more was taken all the same, from then on all are waited for, first
 * those that are queued.
 */
static bool has_room(struct worker *w)
{
    unsigned node = starpu_worker_get_local_memory_node();
    int64_t total = (int64_t)starpu_memory_get_total(node);

    if (!w->waits && total > 0 && (int64_t)starpu_memory_get_used(node) > total / 6 * 5) {
        w->waits = true;
        sp_cuda_must(cudaStreamSynchronize(w->stream), "before memory runs short");
    }
    return !w->waits;
}

const struct sp_backend *sp_cuda_kernels(const void *arg)
{
    struct sp_task_args *a = (struct sp_task_args *)(uintptr_t)arg; /* the task's own */
    struct worker *w = this_worker();
    bool room = has_room(w);

    a->in_stream = a->in_stream && room;
    return sp_cuda_backend(w->cuda, a->dtype);
}

static void sample_bytes(void)
{
    int64_t sum = sp_cuda_held_bytes();

    for (unsigned node = 0; node < starpu_memory_nodes_get_count(); node++)
        if (starpu_node_get_kind(node) == STARPU_CUDA_RAM)
            sum += (int64_t)starpu_memory_get_used(node);
    sp_raise(&peak, sum);
}

int64_t sp_cuda_peak_bytes(void)
{
    return __atomic_load_n(&peak, __ATOMIC_RELAXED);
}

void sp_cuda_queued(const void *arg)
{
    struct worker *w = this_worker();

    if (((const struct sp_task_args *)arg)->in_stream)
        return;
    sample_bytes(); /* buffers last at least as long as an op, whose end comes here */
    sp_cuda_must(cudaEventRecord(w->queued, w->stream), "an event");
    sp_cuda_must(cudaStreamWaitEvent(starpu_cuda_get_local_stream(), w->queued, 0), "an event");
}

void sp_cuda_name(int device, char name[128])
{
    struct cudaDeviceProp p;

    snprintf(name, 128, "%.127s",
             cudaGetDeviceProperties(&p, device) == cudaSuccess ? p.name : "GPU");
}

void sp_cuda_wait(const struct sp_backend *k)
{
    if (k->cuda)
        sp_cuda_must(cudaStreamSynchronize(k->cuda->stream), "what was measured");
}

int sp_cuda_memory(int device, int64_t *total, int64_t *unused)
{
    size_t all, left;

    if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&left, &all) != cudaSuccess)
        return -EIO;
    *total = (int64_t)all;
    *unused = (int64_t)left;
    return 0;
}

int64_t sp_cuda_kernels_bytes(int device, const struct sp_shape *sh, int len)
{
    const int before_and_slice[2] = {sh->seq - len, len};
    int slices = len < sh->seq ? 2 : 1;
    struct sp_attention at = {
        .batch = sh->batch,
        .heads = sh->model.heads,
        .kv_heads = sh->model.kv_heads,
        .head_dim = sh->model.head_dim,
        .q_len = len,
        .q_pos = sh->seq - len,
        .n_kv = slices,
        .kv_len = before_and_slice + 2 - slices,
    };

    return sp_cuda_most_held(device, sh->dtype, sh->model.hidden, &at);
}

enum { MEASURED_BYTES = 64 << 20, MEASURED_TIMES = 4 };

/* The best of a few copies; a negative number where one fails. */
static double copy_rate(void *to, const void *from, cudaStream_t stream)
{
    double best = 0;

    for (int i = 0; i < MEASURED_TIMES; i++) {
        double start = sp_now_us();

        if (cudaMemcpyAsync(to, from, MEASURED_BYTES, cudaMemcpyDefault, stream) != cudaSuccess ||
            cudaStreamSynchronize(stream) != cudaSuccess)
            return -1;
        best = fmax(best, 1e6 * MEASURED_BYTES / (sp_now_us() - start));
    }
    return best;
}

/* Half of the bytes each way at once, each way. */
static double both_rate(char *here, char *there, cudaStream_t out, cudaStream_t back)
{
    const size_t half = MEASURED_BYTES / 2;
    double best = 0;

    for (int i = 0; i < MEASURED_TIMES; i++) {
        double start = sp_now_us();

        if (cudaMemcpyAsync(here, there, half, cudaMemcpyDefault, out) != cudaSuccess ||
            cudaMemcpyAsync(there + half, here + half, half, cudaMemcpyDefault, back) !=
                cudaSuccess ||
            cudaStreamSynchronize(out) != cudaSuccess || cudaStreamSynchronize(back) != cudaSuccess)
            return -1;
        best = fmax(best, 1e6 * (double)half / (sp_now_us() - start));
    }
    return best;
}

int sp_cuda_measure_copies(int device, double *out, double *back, double *both)
{
    void *here = NULL, *there = NULL;
    cudaStream_t stream[2] = {NULL, NULL};
    bool ok = cudaSetDevice(device) == cudaSuccess &&
              cudaMallocHost(&here, MEASURED_BYTES) == cudaSuccess &&
              cudaMalloc(&there, MEASURED_BYTES) == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking) == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking) == cudaSuccess;

    *out = *back = -1;
    if (ok) {
        *out = copy_rate(here, there, stream[0]);
        *back = copy_rate(there, here, stream[0]);
    }
    if (ok && both)
        *both = both_rate(here, there, stream[0], stream[1]);
    ok = *out > 0 && *back > 0 && (!both || *both > 0);
    for (int i = 0; i < 2; i++)
        if (stream[i])
            cudaStreamDestroy(stream[i]);
    cudaFree(there);
    cudaFreeHost(here);
    return ok ? 0
              : sp_error(EIO, "cuda: copies between GPU %d and the host cannot be measured: %s",
                         device, cudaGetErrorString(cudaGetLastError()));
}

int sp_cuda_devices(bool wanted)
{
    int n = 0;

    /* Streams that share a queue wait for each other. CUDA reads it once, when the first context is made: whoever makes
     * one has asked here before. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (cudaGetDeviceCount(&n) == cudaSuccess && n > 0)
        return n;
    if (wanted)
        sp_cuda_check(0); /* says why */
    return 0;
}

int sp_cuda_usable(int device)
{
    return sp_cuda_check(device);
}

const char *sp_cuda_cudnn(void)
{
#ifdef HAVE_CUDNN_FRONTEND
    return sp_cudnn_about();
#else
    return "no (built without its frontend)";
#endif
}

const char *sp_cuda_flash3(void)
{
    return sp_flash3_about();
}
#else

int sp_cuda_start(void)
{
    return sp_error(ENOSYS, "internal: CUDA is wanted in a build without it");
}

void sp_cuda_stop(void)
{
}

bool sp_cuda_has_pool(int device)
{
    (void)device;
    return false;
}

int sp_cuda_pools_start(int64_t budget_bytes)
{
    (void)budget_bytes;
    return -ENOSYS;
}

void sp_cuda_pools_stop(void)
{
}

void *sp_cuda_take(unsigned node, size_t bytes)
{
    (void)node, (void)bytes;
    return NULL;
}

void sp_cuda_give(unsigned node, void *memory, size_t bytes)
{
    (void)node, (void)memory, (void)bytes;
}

bool sp_cuda_pin(void *memory, size_t bytes)
{
    (void)memory, (void)bytes;
    return false;
}

void sp_cuda_unpin(void *memory)
{
    (void)memory;
}

int sp_cuda_devices(bool wanted)
{
    if (wanted)
        sp_error(ENODEV, "cuda: this build has no CUDA kernels: install the CUDA toolkit and build "
                         "again, or use --device cpu");
    return 0;
}

int sp_cuda_usable(int device)
{
    return sp_error(ENODEV, "cuda: no device %d in a build without CUDA", device);
}

void sp_cuda_name(int device, char name[128])
{
    (void)device;
    snprintf(name, 128, "none");
}

void sp_cuda_wait(const struct sp_backend *k)
{
    (void)k;
}

int sp_cuda_memory(int device, int64_t *total, int64_t *unused)
{
    (void)device;
    *total = *unused = 0;
    return -ENODEV;
}

int64_t sp_cuda_kernels_bytes(int device, const struct sp_shape *sh, int len)
{
    (void)device, (void)sh, (void)len;
    return 0;
}

int sp_cuda_measure_copies(int device, double *out, double *back, double *both)
{
    (void)both;
    *out = *back = 0;
    return sp_error(ENODEV, "cuda: no device %d in a build without CUDA", device);
}

const char *sp_cuda_cudnn(void)
{
    return "no";
}

const char *sp_cuda_flash3(void)
{
    return "no";
}

int64_t sp_cuda_peak_bytes(void)
{
    return 0;
}
#endif
