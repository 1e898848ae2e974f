/* A CUDA runtime whose device is the host's memory, and whose answers are the test's to choose. */
#ifndef SP_TESTS_FAKE_CUDART_H
#define SP_TESTS_FAKE_CUDART_H

#include <cuda_runtime.h>
#include <stdbool.h>

struct sp_fake_cudart {
    int driver, runtime;                /* versions, 1000 major + 10 minor; driver 0: none */
    cudaError_t count_error, set_error; /* of cudaGetDeviceCount, cudaSetDevice */
    cudaError_t stream_error;           /* what kernels queued so far have done */
    int devices, major, minor;
    size_t total_bytes, used_bytes;
    int most_allocations; /* cudaMalloc fails from this one on */
    int allocations, live, events, waits;
    int device_waits; /* calls that wait for all of the device: allocations and frees outside of streams */
    double us;        /* the device's clock */
};

extern struct sp_fake_cudart sp_fake_cudart;

/* One H100 of 1 GiB, everything well. */
void sp_fake_cudart_reset(void);

#endif
