/*
 * The part of the CUDA runtime that src/kernels/cuda uses, without CUDA: a stream is a queue,
 * device memory is host memory, and tests/kernels/cuda/emulation.h runs kernels. Put first on the
 * include path.
 */
#ifndef SP_STUB_CUDA_RUNTIME_H
#define SP_STUB_CUDA_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *cudaStream_t; /* there is one, whatever its name */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidConfiguration = 9
} cudaError_t;

enum cudaMemcpyKind { cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

const char *cudaGetErrorString(cudaError_t err);

/* These are queued, as kernels are. */
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
/* Runs all that was queued. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
/* Waits for nothing: it may be called only when nothing is queued. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);

#ifdef __cplusplus
}
#include "../emulation.h"
#endif

#endif
