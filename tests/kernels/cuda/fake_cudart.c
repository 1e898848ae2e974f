#include "fake_cudart.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct sp_fake_cudart sp_fake_cudart;

void sp_fake_cudart_reset(void)
{
    sp_fake_cudart = (struct sp_fake_cudart){
        .driver = 13000,
        .runtime = 13000,
        .devices = 1,
        .major = 9,
        .total_bytes = (size_t)1 << 30,
        .most_allocations = INT_MAX,
    };
}

const char *cudaGetErrorString(cudaError_t err)
{
    static char text[32];

    snprintf(text, sizeof text, "error %d", (int)err);
    return text;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return sp_fake_cudart.stream_error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = sp_fake_cudart.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = sp_fake_cudart.runtime;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!sp_fake_cudart.count_error)
        *count = sp_fake_cudart.devices;
    return sp_fake_cudart.count_error;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (device >= sp_fake_cudart.devices)
        return cudaErrorInvalidDevice;
    snprintf(p->name, sizeof p->name, "Fake %d", device);
    p->major = sp_fake_cudart.major;
    p->minor = sp_fake_cudart.minor;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (device >= sp_fake_cudart.devices)
        return cudaErrorInvalidDevice;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? sp_fake_cudart.major : 132;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device < sp_fake_cudart.devices ? sp_fake_cudart.set_error : cudaErrorInvalidDevice;
}

enum { MAPPED = 256 << 20 }; /* from here on, memory that costs nothing before it is touched */

/* Each allocation knows its size, and is aligned as the device's are. */
struct block {
    size_t bytes;
    char unused[256 - sizeof(size_t)];
};

static void *memory(size_t bytes)
{
    void *p;

    if (bytes < MAPPED)
        return aligned_alloc(256, (bytes + 255) / 256 * 256);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    return p == MAP_FAILED ? NULL : p;
}

static cudaError_t take(void **p, size_t bytes)
{
    struct block *b;

    if (sp_fake_cudart.allocations >= sp_fake_cudart.most_allocations ||
        sp_fake_cudart.used_bytes + bytes > sp_fake_cudart.total_bytes)
        return cudaErrorMemoryAllocation;
    b = memory(sizeof *b + bytes);
    if (!b)
        return cudaErrorMemoryAllocation;
    b->bytes = bytes;
    sp_fake_cudart.used_bytes += bytes;
    sp_fake_cudart.allocations++;
    sp_fake_cudart.live++;
    *p = b + 1;
    return cudaSuccess;
}

static cudaError_t give_back(void *p)
{
    struct block *b;

    if (!p)
        return cudaSuccess;
    b = (struct block *)p - 1;
    sp_fake_cudart.used_bytes -= b->bytes;
    sp_fake_cudart.live--;
    if (sizeof *b + b->bytes < MAPPED)
        free(b);
    else
        munmap(b, sizeof *b + b->bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return take(p, bytes);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    (void)stream;
    return give_back(p);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    sp_fake_cudart.device_waits++;
    return take(p, bytes);
}

cudaError_t cudaFree(void *p)
{
    sp_fake_cudart.device_waits += p != NULL;
    return give_back(p);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = sp_fake_cudart.total_bytes - sp_fake_cudart.used_bytes;
    *total = sp_fake_cudart.total_bytes;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    sp_fake_cudart.waits++;
    return sp_fake_cudart.stream_error;
}

struct event {
    double us;
};

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = (cudaEvent_t)(void *)calloc(1, sizeof(struct event));
    sp_fake_cudart.events++;
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free((void *)event);
    sp_fake_cudart.events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    ((struct event *)(void *)event)->us = sp_fake_cudart.us;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return sp_fake_cudart.stream_error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)((((struct event *)(void *)to)->us - ((struct event *)(void *)from)->us) / 1000);
    return cudaSuccess;
}
