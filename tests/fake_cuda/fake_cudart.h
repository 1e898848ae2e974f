/*
 * Settings, reports and counts of the fake CUDA runtime, for tests and programs on it. With NVIDIA's
 * library these names are NULL: a program that looks first runs with either.
 */
#ifndef SP_TESTS_FAKE_CUDART_H
#define SP_TESTS_FAKE_CUDART_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The environment chooses (fake.h), or sp_fake_cudart_reset and the test after it. */
struct sp_fake_cudart {
    int driver, runtime;                /* versions, 1000 major + 10 minor; driver 0: none */
    cudaError_t count_error, set_error; /* of cudaGetDeviceCount, cudaSetDevice */
    cudaError_t stream_error;           /* what kernels queued so far have done */
    int devices, major, minor;
    size_t total_bytes;   /* of each device */
    int most_allocations; /* allocations fail from this one on */
    bool at_once;         /* streams have no threads: what is queued is done */
    double us;            /* the devices' clock, if at_once */
    bool pools, check;
    long jitter_us;
    uint64_t seed;
    double bus, kernels; /* MB/s, bytes a us, of engines; 0: no limit */
    int queues;          /* that all streams share; 0: each has its own */
    /* ---- what happened, on all devices ---- */
    size_t used_bytes;
    int allocations, live, events, waits;
    int device_waits; /* allocations and frees outside of streams: they wait for the device */
};

#define SP_FAKE_WEAK __attribute__((weak))

extern struct sp_fake_cudart sp_fake_cudart SP_FAKE_WEAK;

/* One H100 of 1 GiB, everything well, at_once. */
void sp_fake_cudart_reset(void);

/*
 * Before code touches memory. In a kernel, a host function queued with cudaLaunchHostFunc: the
 * bytes must be memory that the kernel's device can reach, or the run ends. Anywhere else: the
 * host's own access, which must be to host memory.
 */
void sp_fake_kernel_access(const void *at, size_t bytes, int write) SP_FAKE_WEAK;

/* The name of the kernel that is running, for messages; the string must stay. */
void sp_fake_kernel_name(const char *name) SP_FAKE_WEAK;

/* In a kernel: it never ends, nor does what is queued after it. */
void sp_fake_kernel_hangs(void) SP_FAKE_WEAK;

/* Counts of a device since the start. */
struct sp_fake_counts {
    size_t allocations, bytes, peak_bytes; /* calls of cudaMalloc, bytes now and at the highest */
    size_t pooled;                         /* allocations in the order of a stream */
};

void sp_fake_counts(int device, struct sp_fake_counts *counts) SP_FAKE_WEAK;

#ifdef __cplusplus
}
#endif

#endif
