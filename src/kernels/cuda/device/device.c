/*
 * Errors of a device, each told in one line; and the workspace of a worker.
 */
#include "kernels/cuda/device/device.h"
#include "sp_error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Ten times the compute capability of the oldest architecture built in. */
#ifndef SP_CUDA_OLDEST
#define SP_CUDA_OLDEST 80
#endif

enum { MIB = 1 << 20, GRAIN = 2 * MIB, ALIGNMENT = 256, MOST_MORE = 64 * MIB };

static int64_t held_bytes; /* of all workers */

/* ---- before work starts ---- */

static int explain(cudaError_t err)
{
    int driver = 0, runtime = 0;

    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return sp_error(ENODEV, "cuda: this machine has no driver: install NVIDIA's, or compute on "
                                "the CPU");
    if (err == cudaErrorInsufficientDriver)
        return sp_error(ENOTSUP,
                        "cuda: the driver knows CUDA up to %d.%d, but starpipe was built with "
                        "%d.%d: install a newer driver, or build with an older CUDA",
                        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (err == cudaErrorNoDevice)
        return sp_error(ENODEV, "cuda: the driver sees no device: try nvidia-smi, and look at "
                                "CUDA_VISIBLE_DEVICES");
    return sp_error(ENODEV, "cuda: devices cannot be listed: %s: try nvidia-smi",
                    cudaGetErrorString(err));
}

int sp_cuda_check(int device)
{
    struct cudaDeviceProp p;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    cudaError_t err = cudaGetDeviceCount(&count);

    if (err == cudaSuccess && count == 0)
        err = cudaErrorNoDevice;
    if (err != cudaSuccess)
        return explain(err);
    if (device < 0 || device >= count)
        return sp_error(ENODEV, "cuda: no device %d: there %s %d, numbered from 0%s%s", device,
                        count == 1 ? "is" : "are", count, visible ? ", CUDA_VISIBLE_DEVICES=" : "",
                        visible ? visible : "");
    err = cudaGetDeviceProperties(&p, device);
    if (err != cudaSuccess)
        return sp_error(ENODEV, "cuda: device %d cannot be asked: %s: try nvidia-smi", device,
                        cudaGetErrorString(err));
    if (10 * p.major + p.minor < SP_CUDA_OLDEST)
        return sp_error(ENOTSUP,
                        "cuda: device %d (%s) has compute capability %d.%d, starpipe needs %d.%d "
                        "or newer: choose another with CUDA_VISIBLE_DEVICES, or compute on the CPU",
                        device, p.name, p.major, p.minor, SP_CUDA_OLDEST / 10, SP_CUDA_OLDEST % 10);
    return 0;
}

/* ---- errors that end the run ---- */

void sp_cuda_fatal(const char *format, ...)
{
    char line[900];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    /* Nobody will release a held line after this one. */
    sp_error_hold(0);
    sp_error(0, "%s", line);
    _exit(1);
}

/* `wanted` 0: the size is not known. */
static void __attribute__((noreturn)) out_of_memory(const char *what, size_t wanted)
{
    size_t available = 0, total = 0;
    char size[48] = "";

    cudaMemGetInfo(&available, &total);
    if (wanted)
        snprintf(size, sizeof size, " for %.1f MiB", (double)wanted / MIB);
    sp_cuda_fatal("cuda: %s: out of memory%s: %.1f of %.1f MiB are free: lower --micro-batch-size "
                  "or --memory-limit, or use --recompute or --offload",
                  what, size, (double)available / MIB, (double)total / MIB);
}

static const char *advice(cudaError_t err)
{
    switch (err) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
        return ": starpipe was built for other architectures than this device's";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
        return ": a kernel before this one failed: SP_SYNC=1 with CUDA_LAUNCH_BLOCKING=1 shows "
               "which";
    case cudaErrorECCUncorrectable:
    case cudaErrorDevicesUnavailable:
        return ": look at the device with nvidia-smi";
    default:
        return "";
    }
}

void sp_cuda_must(cudaError_t err, const char *what)
{
    if (err == cudaSuccess)
        return;
    if (err == cudaErrorMemoryAllocation)
        out_of_memory(what, 0);
    sp_cuda_fatal("cuda: %s: %s%s", what, cudaGetErrorString(err), advice(err));
}

/* ---- memory ---- */

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

size_t sp_cuda_roomy(size_t bytes)
{
    size_t more = bytes / 8 < MOST_MORE ? bytes / 8 : MOST_MORE;

    return round_up(bytes + more, GRAIN);
}

static void forget_workspace(struct sp_cuda *cuda)
{
    sp_cuda_hold(-(int64_t)cuda->workspace_bytes);
    cuda->workspace = NULL;
    cuda->workspace_bytes = 0;
}

static void (*when_short)(int device);

void sp_cuda_when_short(void (*release)(int device))
{
    __atomic_store_n(&when_short, release, __ATOMIC_RELEASE);
}

static cudaError_t try_workspace(struct sp_cuda *cuda, size_t bytes)
{
    cudaError_t err = cudaMallocAsync(&cuda->workspace, bytes, cuda->stream);

    if (err == cudaErrorMemoryAllocation)
        cudaGetLastError(); /* clear the error: there may be another way */
    return err;
}

/* Allocates with room to grow; else the least that will do; else that again after other owners
 * released memory. */
static cudaError_t allocate_workspace(struct sp_cuda *cuda, size_t bytes, size_t *grown)
{
    void (*release)(int device) = __atomic_load_n(&when_short, __ATOMIC_ACQUIRE);
    cudaError_t err;

    *grown = sp_cuda_roomy(bytes);
    err = try_workspace(cuda, *grown);
    if (err != cudaErrorMemoryAllocation)
        return err;
    *grown = round_up(bytes, ALIGNMENT);
    err = try_workspace(cuda, *grown);
    if (err != cudaErrorMemoryAllocation || !release)
        return err;
    release(cuda->device);
    return try_workspace(cuda, *grown);
}

void *sp_cuda_workspace(const struct sp_backend *k, size_t bytes)
{
    struct sp_cuda *cuda = k->cuda;
    size_t grown;
    cudaError_t err;

    if (bytes <= cuda->workspace_bytes)
        return cuda->workspace;
    /* Kernels that use the old one may still be queued, so it is freed in the order of the
     * stream. cudaFree would wait for all of the device, and maybe for ever for messages between
     * GPUs whose other end is not there yet. */
    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "before the workspace grows");
    if (cuda->workspace)
        sp_cuda_must(cudaFreeAsync(cuda->workspace, cuda->stream), "before the workspace grows");
    forget_workspace(cuda);
    err = allocate_workspace(cuda, bytes, &grown);
    if (err == cudaErrorMemoryAllocation)
        out_of_memory("workspace", grown);
    sp_cuda_must(err, "workspace");
    cuda->workspace_bytes = grown;
    sp_cuda_hold((int64_t)grown);
    return cuda->workspace;
}

void sp_cuda_release(struct sp_cuda *cuda)
{
    cudaFree(cuda->workspace);
    forget_workspace(cuda);
}

void sp_cuda_hold(int64_t bytes)
{
    __atomic_fetch_add(&held_bytes, bytes, __ATOMIC_RELAXED);
}

int64_t sp_cuda_held_bytes(void)
{
    return __atomic_load_n(&held_bytes, __ATOMIC_RELAXED);
}
