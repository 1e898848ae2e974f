/* Settings, errors, the lock, devices: which one a thread uses, which may access which. */
#include "fake.h"
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sp_fake_cudart sp_fake_cudart;
struct sp_fake_counts sp_counts[SP_DEVICES];
pthread_mutex_t sp_lock = PTHREAD_MUTEX_INITIALIZER;
__thread struct sp_item *sp_kernel;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool chosen; /* by sp_fake_cudart_reset, not by the environment */
static __thread const char *calling = "in a stream";
static __thread cudaError_t last;
static __thread int current;
static bool reaches[SP_DEVICES][SP_DEVICES];

/* ---- settings -------------------------------------------------------------------------------- */

void sp_fake_cudart_reset(void)
{
    sp_fake_cudart = (struct sp_fake_cudart){
        .driver = CUDART_VERSION,
        .runtime = CUDART_VERSION,
        .devices = 1,
        .major = 9,
        .total_bytes = (size_t)1 << 30,
        .most_allocations = INT_MAX,
        .at_once = true,
        .pools = true,
    };
    chosen = true;
    last = cudaSuccess;
}

static unsigned long long setting(const char *name, unsigned long long absent,
                                  unsigned long long most)
{
    const char *text = getenv(name), *unit = "kMG", *found;
    unsigned long long n;
    char *end;

    if (!text || !*text)
        return absent;
    errno = 0;
    n = strtoull(text, &end, 10);
    found = *end ? strchr(unit, *end) : NULL;
    if (found && end[1] == '\0')
        n <<= 10 * (found - unit + 1);
    if (errno || end == text || (*end && !found) || *text == '-' || n > most)
        sp_refuse("%s=%s is no number from 0 to %llu", name, text, most);
    return n;
}

static void print_counts(void)
{
    for (int d = 0; d < sp_fake_cudart.devices; d++)
        fprintf(stderr, "fake GPU %d: %zu allocations, %zu pooled, %zu MiB at the highest\n", d,
                sp_counts[d].allocations, sp_counts[d].pooled, sp_counts[d].peak_bytes >> 20);
}

static void read_settings(void)
{
    int capability;

    if (chosen)
        return;
    capability = (int)setting("SP_FAKE_GPU_CAPABILITY", 90, 999);
    sp_fake_cudart = (struct sp_fake_cudart){
        .driver = CUDART_VERSION,
        .runtime = CUDART_VERSION,
        .devices = (int)setting("SP_FAKE_GPUS", 1, SP_DEVICES),
        .major = capability / 10,
        .minor = capability % 10,
        .total_bytes = setting("SP_FAKE_GPU_MEM", 1ull << 30, 1ull << 46),
        .most_allocations = INT_MAX,
        .pools = setting("SP_FAKE_GPU_POOLS", 1, 1),
        .check = setting("SP_FAKE_GPU_CHECK", 0, 1),
        .jitter_us = (long)setting("SP_FAKE_GPU_JITTER_US", 0, 1000000),
        .seed = setting("SP_FAKE_GPU_SEED", 1, ~0ull),
        .bus = (double)setting("SP_FAKE_GPU_BUS", 0, 1ull << 40),
        .kernels = (double)setting("SP_FAKE_GPU_KERNELS", 0, 1ull << 40),
        .queues = (int)setting("SP_FAKE_GPU_QUEUES", 0, SP_QUEUES),
    };
    if (setting("SP_FAKE_GPU_COUNTS", 0, 1))
        atexit(print_counts);
}

/* ---- errors, the lock ------------------------------------------------------------------------ */

void sp_enter(const char *function)
{
    calling = function;
    pthread_once(&once, read_settings);
    if (sp_kernel)
        sp_refuse("called from a kernel (%s), which CUDA forbids", sp_kernel->name);
}

cudaError_t sp_leave(cudaError_t err)
{
    if (err != cudaSuccess)
        last = err;
    return err;
}

void sp_refuse(const char *format, ...)
{
    char line[900];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    fprintf(stderr, "fake cuda: %s: %s\n", calling, line);
    abort();
}

/* For the functions that the fake has only names of. */
void sp_fake_unknown(const char *function)
{
    sp_enter(function);
    sp_refuse("not known to the fake");
}

void *sp_new(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        sp_refuse("no host memory");
    return p;
}

void sp_take_lock(void)
{
    pthread_mutex_lock(&sp_lock);
}

void sp_give_lock(void)
{
    pthread_mutex_unlock(&sp_lock);
}

double sp_now_us(void)
{
    struct timespec t;

    if (sp_fake_cudart.at_once)
        return sp_fake_cudart.us;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t err = last;

    SP_ENTER();
    last = cudaSuccess;
    return err;
}

cudaError_t cudaPeekAtLastError(void)
{
    SP_ENTER();
    return last ? last : sp_fake_cudart.stream_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static __thread char text[32];

    snprintf(text, sizeof text, "error %d", (int)error);
    return text;
}

/* ---- which device ---------------------------------------------------------------------------- */

static bool exists(int device)
{
    return device >= 0 && device < sp_fake_cudart.devices;
}

void sp_device_exists(int device)
{
    if (!exists(device))
        sp_refuse("there is no device %d of %d", device, sp_fake_cudart.devices);
}

int sp_current(void)
{
    sp_device_exists(current);
    return current;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t err;

    SP_ENTER();
    err = sp_fake_cudart.count_error;
    *count = err ? 0 : sp_fake_cudart.devices;
    return sp_leave(err || *count ? err : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    SP_ENTER();
    if (!exists(device))
        return sp_leave(cudaErrorInvalidDevice);
    current = device;
    return sp_leave(sp_fake_cudart.set_error);
}

cudaError_t cudaGetDevice(int *device)
{
    SP_ENTER();
    *device = sp_current();
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    SP_ENTER();
    *version = sp_fake_cudart.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    SP_ENTER();
    *version = sp_fake_cudart.runtime;
    return cudaSuccess;
}

/* No map of pageable memory, no managed memory: what is not copied or pinned is not there. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    SP_ENTER();
    if (!exists(device))
        return sp_leave(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake %d", device);
    p->totalGlobalMem = sp_fake_cudart.total_bytes;
    p->major = sp_fake_cudart.major;
    p->minor = sp_fake_cudart.minor;
    p->multiProcessorCount = 132;
    p->concurrentKernels = p->canMapHostMemory = p->unifiedAddressing = 1;
    p->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp p;

    if (cudaGetDeviceProperties(&p, device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    SP_ENTER();
    switch ((int)attr) {
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrMemoryPoolsSupported:
        *value = sp_fake_cudart.pools;
        break;
    case cudaDevAttrPciBusId:
        *value = p.pciBusID;
        break;
    case cudaDevAttrComputeMode:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        *value = 0;
        break;
    default: /* A made-up answer would be believed. */
        sp_refuse("attribute %d is not known to the fake", (int)attr);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    SP_ENTER();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* Scheduling of waiting threads; nothing to choose here. */
cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    SP_ENTER();
    (void)flags;
    return cudaSuccess;
}

/* ---- peers ----------------------------------------------------------------------------------- */

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    SP_ENTER();
    if (!exists(device) || !exists(peer))
        return sp_leave(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    bool *on;

    SP_ENTER();
    if (!exists(peer) || peer == sp_current())
        return sp_leave(cudaErrorInvalidDevice);
    if (flags)
        return sp_leave(cudaErrorInvalidValue);
    on = &reaches[current][peer];
    if (__atomic_exchange_n(on, true, __ATOMIC_RELAXED))
        return sp_leave(cudaErrorPeerAccessAlreadyEnabled);
    return cudaSuccess;
}

bool sp_device_reaches(int device, int peer)
{
    return device == peer || __atomic_load_n(&reaches[device][peer], __ATOMIC_RELAXED);
}

/* ---- as a whole ------------------------------------------------------------------------------ */

cudaError_t cudaDeviceSynchronize(void)
{
    SP_ENTER();
    sp_take_lock();
    sp_wait_device(sp_current());
    sp_give_lock();
    return cudaSuccess;
}

/* Streams and memory of the device stay, which nobody uses any more. */
cudaError_t cudaDeviceReset(void)
{
    SP_ENTER();
    sp_take_lock();
    sp_wait_device(sp_current());
    for (int peer = 0; peer < SP_DEVICES; peer++)
        __atomic_store_n(&reaches[current][peer], false, __ATOMIC_RELAXED);
    sp_give_lock();
    return cudaSuccess;
}

void sp_fake_counts(int device, struct sp_fake_counts *counts)
{
    sp_device_exists(device);
    sp_take_lock();
    *counts = sp_counts[device];
    sp_give_lock();
}
