/* Devices: settings, properties, the current device of a thread, peer access. */
#include "fake.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sp_fake_counts sp_counts[SP_DEVICES];

static struct sp_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread int current;
static bool reaches[SP_DEVICES][SP_DEVICES];

/* ---- settings -------------------------------------------------------------------------------- */

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
    for (int d = 0; d < settings.devices; d++)
        fprintf(stderr, "fake GPU %d: %zu allocations, %zu pooled, %zu MiB at the highest\n", d,
                sp_counts[d].allocations, sp_counts[d].pooled, sp_counts[d].peak_bytes >> 20);
}

static void read_settings(void)
{
    settings.devices = (int)setting("SP_FAKE_GPUS", 1, SP_DEVICES);
    settings.memory = setting("SP_FAKE_GPU_MEM", 1ull << 30, 1ull << 46);
    settings.capability = (int)setting("SP_FAKE_GPU_CAPABILITY", 90, 999);
    settings.jitter_us = (long)setting("SP_FAKE_GPU_JITTER_US", 0, 1000000);
    settings.seed = setting("SP_FAKE_GPU_SEED", 1, ~0ull);
    settings.check = setting("SP_FAKE_GPU_CHECK", 0, 1);
    settings.log = setting("SP_FAKE_GPU_LOG", 0, 1);
    settings.pools = setting("SP_FAKE_GPU_POOLS", 1, 1);
    if (setting("SP_FAKE_GPU_COUNTS", 0, 1))
        atexit(print_counts);
}

const struct sp_settings *sp_settings(void)
{
    pthread_once(&once, read_settings);
    return &settings;
}

/* ---- which device ---------------------------------------------------------------------------- */

static bool exists(int device)
{
    return device >= 0 && device < sp_settings()->devices;
}

void sp_device_exists(int device)
{
    if (!exists(device))
        sp_refuse("there is no device %d of %d", device, sp_settings()->devices);
}

int sp_current(void)
{
    sp_device_exists(current);
    return current;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    SP_ENTER();
    *count = sp_settings()->devices;
    return sp_leave(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    SP_ENTER();
    if (!exists(device))
        return sp_leave(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    SP_ENTER();
    *device = sp_current();
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- what a device is ------------------------------------------------------------------------ */

/* Devices map no pageable memory and have no managed memory: they see only copied or pinned
 * data. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    SP_ENTER();
    if (!exists(device))
        return sp_leave(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "fake GPU");
    p->uuid.bytes[0] = (char)(device + 1);
    p->totalGlobalMem = sp_settings()->memory;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = p->sharedMemPerMultiprocessor = 227 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->memPitch = 0x7fffffff;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->totalConstMem = 64 << 10;
    p->textureAlignment = 512;
    p->major = sp_settings()->capability / 10;
    p->minor = sp_settings()->capability % 10;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 4 << 20;
    p->asyncEngineCount = 2;
    p->memoryPoolsSupported = sp_settings()->pools;
    p->concurrentKernels = p->streamPrioritiesSupported = 1;
    p->canMapHostMemory = p->unifiedAddressing = 1;
    p->hostRegisterSupported = p->canUseHostPointerForRegisteredMem = 1;
    p->pciBusID = device + 1;
    p->hostNumaId = -1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp p;

    if (cudaGetDeviceProperties(&p, device) != cudaSuccess)
        return sp_leave(cudaErrorInvalidDevice);
    SP_ENTER();
    switch (attr) {
#define ATTRIBUTE(name, field)                                                                     \
    case cudaDevAttr##name:                                                                        \
        *value = (int)(field);                                                                     \
        break;
        ATTRIBUTE(MaxThreadsPerBlock, p.maxThreadsPerBlock)
        ATTRIBUTE(MaxSharedMemoryPerBlock, p.sharedMemPerBlock)
        ATTRIBUTE(MaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin)
        ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor)
        ATTRIBUTE(MaxRegistersPerBlock, p.regsPerBlock)
        ATTRIBUTE(MaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor)
        ATTRIBUTE(WarpSize, p.warpSize)
        ATTRIBUTE(MultiProcessorCount, p.multiProcessorCount)
        ATTRIBUTE(L2CacheSize, p.l2CacheSize)
        ATTRIBUTE(ComputeMode, cudaComputeModeDefault)
        ATTRIBUTE(ComputeCapabilityMajor, p.major)
        ATTRIBUTE(ComputeCapabilityMinor, p.minor)
        ATTRIBUTE(ConcurrentKernels, p.concurrentKernels)
        ATTRIBUTE(AsyncEngineCount, p.asyncEngineCount)
        ATTRIBUTE(UnifiedAddressing, p.unifiedAddressing)
        ATTRIBUTE(CanMapHostMemory, p.canMapHostMemory)
        ATTRIBUTE(ManagedMemory, p.managedMemory)
        ATTRIBUTE(PageableMemoryAccess, p.pageableMemoryAccess)
        ATTRIBUTE(StreamPrioritiesSupported, p.streamPrioritiesSupported)
        ATTRIBUTE(MemoryPoolsSupported, p.memoryPoolsSupported)
        ATTRIBUTE(PciBusId, p.pciBusID)
        ATTRIBUTE(PciDeviceId, p.pciDeviceID)
        ATTRIBUTE(PciDomainId, p.pciDomainID)
    default:
        /* A made-up answer would be believed. */
        sp_refuse("attribute %d is not known to the fake", (int)attr);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    SP_ENTER();
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}

/* Flags choose how waiting threads are scheduled; the fake ignores them. */
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

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    SP_ENTER();
    if (!exists(peer))
        return sp_leave(cudaErrorInvalidDevice);
    if (!__atomic_exchange_n(&reaches[sp_current()][peer], false, __ATOMIC_RELAXED))
        return sp_leave(cudaErrorPeerAccessNotEnabled);
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

/* Drops all that the device has: streams, allocations, peer access. */
cudaError_t cudaDeviceReset(void)
{
    SP_ENTER();
    sp_take_lock();
    sp_wait_device(sp_current());
    sp_streams_close(current);
    sp_memory_reset(current);
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
