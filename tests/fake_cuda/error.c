/* Errors: those CUDA returns, remembered per thread; those that end the run; the lock. */
#include "fake.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t sp_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread const char *calling = "in a stream";
static __thread cudaError_t last;

/* The errors that the fake returns, and what else programs compare with. */
#define ERRORS(X)                                                                                  \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorCudartUnloading, "driver shutting down")                                            \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable")            \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                         \
    X(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled")                           \
    X(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is "        \
                                            "already mapped")                                      \
    X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory "      \
                                        "region")                                                  \
    X(cudaErrorNotPermitted, "operation not permitted")                                            \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                        \
    X(cudaErrorUnknown, "unknown error")

static const struct {
    cudaError_t error;
    const char *name, *words;
} errors[] = {
#define ROW(e, words) {e, #e, words},
    ERRORS(ROW)};

void sp_enter(const char *function)
{
    calling = function;
    if (sp_kernel)
        sp_refuse("called from a kernel or a callback (%s), which CUDA forbids", sp_kernel->name);
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
    return last;
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].words;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}
