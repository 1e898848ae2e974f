#include "kernels/cuda/device/pool.h"
#include "kernels/cuda/device/device.h"
#include "sp_error.h"
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDLE = 4096 };

struct sp_cuda_pool {
    pthread_mutex_t mutex;
    cudaMemPool_t memory;
    cudaStream_t stream; /* memory is taken and freed in its order, and nothing else is on it */
    size_t used_bytes, idle_bytes, budget_bytes;
    int n_idle;
    struct idle {
        void *memory;
        size_t bytes;
    } idle[MOST_IDLE]; /* the oldest first */
};

/* Kernels of other GPUs may read it, as they may what cudaMalloc gives once StarPU let them. */
static cudaError_t let_peers(int device, cudaMemPool_t memory)
{
    int devices = 0, can = 0;
    cudaError_t err = cudaGetDeviceCount(&devices);

    for (int peer = 0; err == cudaSuccess && peer < devices; peer++) {
        struct cudaMemAccessDesc access = {
            .location = {.type = cudaMemLocationTypeDevice, .id = peer},
            .flags = cudaMemAccessFlagsProtReadWrite};

        if (peer == device)
            continue;
        err = cudaDeviceCanAccessPeer(&can, peer, device);
        if (err == cudaSuccess && can)
            err = cudaMemPoolSetAccess(memory, &access, 1);
    }
    return err;
}

static cudaError_t open_memory(int device, struct sp_cuda_pool *p)
{
    const struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = device}};
    uint64_t all = UINT64_MAX; /* to the end: giving it back to the system is what takes time */
    cudaError_t err = cudaMemPoolCreate(&p->memory, &props);

    if (err == cudaSuccess)
        err = cudaMemPoolSetAttribute(p->memory, cudaMemPoolAttrReleaseThreshold, &all);
    if (err == cudaSuccess)
        err = let_peers(device, p->memory);
    if (err == cudaSuccess)
        err = cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking);
    return err;
}

bool sp_cuda_pool_supported(int device)
{
    int supported = 0;
    cudaError_t err = cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device);

    return err == cudaSuccess && supported;
}

int sp_cuda_pool_create(int device, size_t budget_bytes, struct sp_cuda_pool **pool)
{
    struct sp_cuda_pool *p;
    cudaError_t err;

    p = calloc(1, sizeof *p);
    if (!p)
        return sp_error(ENOMEM, "cuda: no memory for a list of buffers");
    pthread_mutex_init(&p->mutex, NULL);
    p->budget_bytes = budget_bytes;
    err = cudaSetDevice(device);
    if (err == cudaSuccess)
        err = open_memory(device, p);
    if (err != cudaSuccess) {
        sp_cuda_pool_destroy(p);
        return sp_error(EIO, "cuda: GPU %d gives no memory pool: %s", device,
                        cudaGetErrorString(err));
    }
    *pool = p;
    return 0;
}

static void release(struct sp_cuda_pool *p, void *memory)
{
    sp_cuda_must(cudaFreeAsync(memory, p->stream), "a buffer that is given back");
}

static struct idle remove_idle(struct sp_cuda_pool *p, int i)
{
    struct idle idle = p->idle[i];

    p->n_idle--;
    memmove(&p->idle[i], &p->idle[i + 1], sizeof *p->idle * (size_t)(p->n_idle - i));
    p->idle_bytes -= idle.bytes;
    return idle;
}

void sp_cuda_pool_destroy(struct sp_cuda_pool *p)
{
    if (!p)
        return;
    while (p->n_idle)
        release(p, remove_idle(p, 0).memory);
    if (p->stream) {
        cudaStreamSynchronize(p->stream);
        cudaStreamDestroy(p->stream);
    }
    if (p->memory)
        cudaMemPoolDestroy(p->memory);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* The latest of this size: its pages are in caches. */
static void *reuse(struct sp_cuda_pool *p, size_t bytes)
{
    for (int i = p->n_idle - 1; i >= 0; i--)
        if (p->idle[i].bytes == bytes)
            return remove_idle(p, i).memory;
    return NULL;
}

/* Memory for any size, of what the driver has or gets. */
static void *make(struct sp_cuda_pool *p, size_t bytes)
{
    void *memory = NULL;

    if (cudaMallocFromPoolAsync(&memory, bytes, p->memory, p->stream) != cudaSuccess) {
        cudaGetLastError(); /* or the next kernel would have it */
        return NULL;
    }
    sp_cuda_must(cudaStreamSynchronize(p->stream), "a buffer");
    return memory;
}

void *sp_cuda_pool_take(struct sp_cuda_pool *p, size_t bytes)
{
    void *memory;

    pthread_mutex_lock(&p->mutex);
    memory = reuse(p, bytes);
    while (!memory && p->n_idle && p->used_bytes + p->idle_bytes + bytes > p->budget_bytes)
        release(p, remove_idle(p, 0).memory);
    if (!memory)
        memory = make(p, bytes);
    while (!memory && p->n_idle) {
        release(p, remove_idle(p, 0).memory);
        memory = make(p, bytes);
    }
    if (memory)
        p->used_bytes += bytes;
    pthread_mutex_unlock(&p->mutex);
    return memory;
}

void sp_cuda_pool_give(struct sp_cuda_pool *p, void *memory, size_t bytes)
{
    pthread_mutex_lock(&p->mutex);
    p->used_bytes -= bytes;
    if (p->n_idle == MOST_IDLE)
        release(p, remove_idle(p, 0).memory);
    p->idle[p->n_idle++] = (struct idle){memory, bytes};
    p->idle_bytes += bytes;
    pthread_mutex_unlock(&p->mutex);
}
