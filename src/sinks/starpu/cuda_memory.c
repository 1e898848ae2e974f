#include "sinks/starpu/cuda_memory.h"
#include "codelets/task/codelet.h"
#include "config.h"
#include "sinks/starpu/cuda.h"
#include "sp_error.h"
#include "transport/clock.h"
#include <math.h>
#include <starpu.h>
#include <stdint.h>
#include <string.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/pool.h"

static struct {
    struct sp_cuda_pool *pool;
    int64_t budget_bytes;
} pools[STARPU_MAXNODES]; /* by memory node */

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

    const int wide = sh->up_width > sh->q_width ? sh->up_width : sh->q_width;
    const struct sp_linear widest = {.T = sh->batch * len, .in = sh->model.hidden, .out = wide};

    return sp_cuda_most_held(device, sh->dtype, &widest, &at);
}

/* ---- copies ---- */

enum { MEASURED_BYTES = 64 << 20, MEASURED_TIMES = 4 };

/* The best rate of a few copies; negative if one fails. */
static double copy_rate(void *to, const void *from, cudaStream_t stream)
{
    double best = 0;

    for (int i = 0; i < MEASURED_TIMES; i++) {
        double start = sp_clock_us(CLOCK_MONOTONIC);

        if (cudaMemcpyAsync(to, from, MEASURED_BYTES, cudaMemcpyDefault, stream) != cudaSuccess ||
            cudaStreamSynchronize(stream) != cudaSuccess)
            return -1;
        best = fmax(best, 1e6 * MEASURED_BYTES / (sp_clock_us(CLOCK_MONOTONIC) - start));
    }
    return best;
}

/* The rate in each direction, while half of the bytes go each way at once. */
static double both_rate(char *here, char *there, cudaStream_t out, cudaStream_t back)
{
    const size_t half = MEASURED_BYTES / 2;
    double best = 0;

    for (int i = 0; i < MEASURED_TIMES; i++) {
        double start = sp_clock_us(CLOCK_MONOTONIC);

        if (cudaMemcpyAsync(here, there, half, cudaMemcpyDefault, out) != cudaSuccess ||
            cudaMemcpyAsync(there + half, here + half, half, cudaMemcpyDefault, back) !=
                cudaSuccess ||
            cudaStreamSynchronize(out) != cudaSuccess || cudaStreamSynchronize(back) != cudaSuccess)
            return -1;
        best = fmax(best, 1e6 * (double)half / (sp_clock_us(CLOCK_MONOTONIC) - start));
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

struct sp_cuda_copies {
    int device;
    cudaStream_t stream;
    cudaEvent_t ended[2]; /* of copies, in turns */
    unsigned begun, waited;
};

struct sp_cuda_copies *sp_cuda_copies_open(int device)
{
    struct sp_cuda_copies *copies = calloc(1, sizeof *copies);

    SP_NEED(copies, "no memory for a stream of copies");
    copies->device = device;
    sp_cuda_must(cudaSetDevice(device), "a GPU");
    sp_cuda_must(cudaStreamCreateWithFlags(&copies->stream, cudaStreamNonBlocking), "a stream");
    for (int i = 0; i < 2; i++)
        sp_cuda_must(cudaEventCreateWithFlags(&copies->ended[i],
                                              cudaEventBlockingSync | cudaEventDisableTiming),
                     "an event");
    return copies;
}

void sp_cuda_copies_close(struct sp_cuda_copies *copies)
{
    for (int i = 0; i < 2; i++)
        cudaEventDestroy(copies->ended[i]);
    cudaStreamDestroy(copies->stream);
    free(copies);
}

void sp_cuda_copy_begin(struct sp_cuda_copies *copies, uint64_t used, void *to, const void *from,
                        size_t bytes)
{
    cudaEvent_t ended = copies->ended[copies->begun++ % 2];

    sp_cuda_follow(copies->device, used, copies->stream);
    sp_cuda_must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies->stream), "a copy");
    sp_cuda_must(cudaEventRecord(ended, copies->stream), "a copy");
}

void sp_cuda_copy_wait(struct sp_cuda_copies *copies)
{
    sp_cuda_must(cudaEventSynchronize(copies->ended[copies->waited++ % 2]), "a copy");
}

/* ---- pools ---- */

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
        err = sp_cuda_pool_create(starpu_memory_node_get_devid(node), device, n, sp_cuda_follow,
                                  &pools[node].pool);
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
void *sp_cuda_take(unsigned node, size_t bytes, uint64_t *used)
{
    int64_t idle = pools[node].budget_bytes - (int64_t)starpu_memory_get_used(node);

    return sp_cuda_pool_take(pools[node].pool, bytes, idle > 0 ? (size_t)idle : 0, used);
}

void sp_cuda_give(unsigned node, void *memory, size_t bytes, uint64_t used)
{
    sp_cuda_pool_give(pools[node].pool, memory, bytes, used);
}

bool sp_cuda_pin(void *memory, size_t bytes)
{
    bool pinned = cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess;

    if (!pinned)
        cudaGetLastError(); /* clears it, or the next kernel of this thread would report it */
    return pinned;
}

void sp_cuda_unpin(void *memory)
{
    if (cudaHostUnregister(memory) != cudaSuccess)
        cudaGetLastError();
}
#else

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

/* Without GPUs, from the host's memory to itself. */
struct sp_cuda_copies {
    char none;
};

struct sp_cuda_copies *sp_cuda_copies_open(int device)
{
    static struct sp_cuda_copies copies;

    (void)device;
    return &copies;
}

void sp_cuda_copies_close(struct sp_cuda_copies *copies)
{
    (void)copies;
}

void sp_cuda_copy_begin(struct sp_cuda_copies *copies, uint64_t used, void *to, const void *from,
                        size_t bytes)
{
    (void)copies, (void)used;
    memcpy(to, from, bytes);
}

void sp_cuda_copy_wait(struct sp_cuda_copies *copies)
{
    (void)copies;
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

void *sp_cuda_take(unsigned node, size_t bytes, uint64_t *used)
{
    (void)node, (void)bytes;
    *used = 0;
    return NULL;
}

void sp_cuda_give(unsigned node, void *memory, size_t bytes, uint64_t used)
{
    (void)node, (void)memory, (void)bytes, (void)used;
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
#endif
