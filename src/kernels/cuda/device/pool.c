#include "kernels/cuda/device/pool.h"
#include "kernels/cuda/device/device.h"
#include "sp_error.h"
#include "sp_idle.h"
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct sp_cuda_pool {
    struct sp_cuda_pool *next; /* in the list of all */
    int device;
    pthread_mutex_t mutex;
    cudaMemPool_t memory;
    cudaStream_t stream; /* orders taking and freeing memory; nothing else uses it */
    sp_cuda_follow_fn *follow;
    struct sp_idle idle;
};

static struct sp_cuda_pool *all;
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- the driver's pools ------------------------------------------------------------------ */

static cudaError_t driver_pool(int device, cudaMemPool_t *memory)
{
    const struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = device}};

    return cudaMemPoolCreate(memory, &props);
}

bool sp_cuda_pool_supported(int device)
{
    cudaMemPool_t memory;
    int supported = 0;

    if (cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device) ==
            cudaSuccess &&
        supported && cudaSetDevice(device) == cudaSuccess &&
        driver_pool(device, &memory) == cudaSuccess) {
        cudaMemPoolDestroy(memory);
        return true;
    }
    cudaGetLastError(); /* clear the error: a run does without pools */
    return false;
}

/* Kernels of other GPUs may read this memory, as StarPU lets them read memory of cudaMalloc. */
static cudaError_t let(int peer, const struct sp_cuda_pool *p)
{
    const struct cudaMemAccessDesc access = {
        .location = {.type = cudaMemLocationTypeDevice, .id = peer},
        .flags = cudaMemAccessFlagsProtReadWrite};
    int can = 0;
    cudaError_t err = cudaDeviceCanAccessPeer(&can, peer, p->device);

    return err == cudaSuccess && can ? cudaMemPoolSetAccess(p->memory, &access, 1) : err;
}

static cudaError_t open_memory(struct sp_cuda_pool *p, const int *peers, int n)
{
    uint64_t threshold = UINT64_MAX; /* keep all: giving memory back to the system takes time */
    cudaError_t err = cudaSetDevice(p->device);

    if (err == cudaSuccess)
        err = driver_pool(p->device, &p->memory);
    if (err == cudaSuccess)
        err = cudaMemPoolSetAttribute(p->memory, cudaMemPoolAttrReleaseThreshold, &threshold);
    for (int i = 0; err == cudaSuccess && i < n; i++)
        if (peers[i] != p->device)
            err = let(peers[i], p);
    if (err == cudaSuccess)
        err = cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking);
    return err;
}

/* Switches the thread to the pool's device; StarPU leaves it to the allocating code. */
static void use_device(const struct sp_cuda_pool *p)
{
    sp_cuda_must(cudaSetDevice(p->device), "a buffer");
}

static void release(struct sp_cuda_pool *p, struct sp_idle_buffer buffer)
{
    use_device(p);
    if (p->follow)
        p->follow(p->device, buffer.used, p->stream);
    sp_cuda_must(cudaFreeAsync(buffer.memory, p->stream), "a buffer that is given back");
}

/* Makes a buffer of any size from memory that the driver's pool has, or gets for it. */
static void *make(struct sp_cuda_pool *p, size_t bytes)
{
    void *memory = NULL;

    use_device(p);
    if (cudaMallocFromPoolAsync(&memory, bytes, p->memory, p->stream) != cudaSuccess) {
        cudaGetLastError(); /* clear it, or the next kernel would report it */
        return NULL;
    }
    sp_cuda_must(cudaStreamSynchronize(p->stream), "a buffer");
    return memory;
}

/* Releases the oldest idle buffers above `most_bytes`. The caller holds the mutex. */
static void keep_idle(struct sp_cuda_pool *p, size_t most_bytes)
{
    while (p->idle.bytes > most_bytes)
        release(p, sp_idle_oldest(&p->idle));
}

/* Called when other code is short of a device's memory: gives all idle memory back. */
static void trim(int device)
{
    pthread_mutex_lock(&all_mutex);
    for (struct sp_cuda_pool *p = all; p; p = p->next) {
        if (p->device != device)
            continue;
        pthread_mutex_lock(&p->mutex);
        keep_idle(p, 0);
        sp_cuda_must(cudaStreamSynchronize(p->stream), "buffers that are given back");
        sp_cuda_must(cudaMemPoolTrimTo(p->memory, 0), "buffers that are given back");
        pthread_mutex_unlock(&p->mutex);
    }
    pthread_mutex_unlock(&all_mutex);
}

/* ---- pools ------------------------------------------------------------------------------------ */

int sp_cuda_pool_create(int device, const int *peers, int n, sp_cuda_follow_fn *follow,
                        struct sp_cuda_pool **pool)
{
    struct sp_cuda_pool *p = calloc(1, sizeof *p);
    cudaError_t err;

    if (!p)
        return sp_error(ENOMEM, "cuda: no memory for a list of buffers");
    pthread_mutex_init(&p->mutex, NULL);
    p->device = device;
    p->follow = follow;
    err = open_memory(p, peers, n);
    if (err != cudaSuccess) {
        sp_cuda_pool_destroy(p);
        return sp_error(EIO, "cuda: GPU %d gives no memory pool: %s", device,
                        cudaGetErrorString(err));
    }
    pthread_mutex_lock(&all_mutex);
    p->next = all;
    all = p;
    pthread_mutex_unlock(&all_mutex);
    sp_cuda_when_short(trim);
    *pool = p;
    return 0;
}

void sp_cuda_pool_destroy(struct sp_cuda_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&all_mutex);
    for (struct sp_cuda_pool **at = &all; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    pthread_mutex_unlock(&all_mutex);
    keep_idle(p, 0);
    if (p->stream) {
        cudaStreamSynchronize(p->stream);
        cudaStreamDestroy(p->stream);
    }
    if (p->memory)
        cudaMemPoolDestroy(p->memory);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

void *sp_cuda_pool_take(struct sp_cuda_pool *p, size_t bytes, size_t most_idle_bytes,
                        uint64_t *used)
{
    struct sp_idle_buffer buffer;

    pthread_mutex_lock(&p->mutex);
    buffer = sp_idle_take(&p->idle, bytes);
    keep_idle(p, most_idle_bytes);
    if (!buffer.memory)
        buffer.memory = make(p, bytes);
    while (!buffer.memory && p->idle.n) {
        release(p, sp_idle_oldest(&p->idle));
        buffer.memory = make(p, bytes);
    }
    pthread_mutex_unlock(&p->mutex);
    *used = buffer.used;
    return buffer.memory;
}

void sp_cuda_pool_give(struct sp_cuda_pool *p, void *memory, size_t bytes, uint64_t used)
{
    pthread_mutex_lock(&p->mutex);
    if (p->idle.n == SP_MOST_IDLE)
        release(p, sp_idle_oldest(&p->idle));
    sp_idle_put(&p->idle, (struct sp_idle_buffer){memory, bytes, used});
    pthread_mutex_unlock(&p->mutex);
}
