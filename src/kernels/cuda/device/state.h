/* Shared by the files that make up struct sp_cuda; no others need it. */
#ifndef SP_CUDA_STATE_H
#define SP_CUDA_STATE_H

#include "kernels/cuda/device/device.h"

/* Adds to sp_cuda_held_bytes; negative to release. */
void sp_cuda_hold(int64_t bytes);

/* The bytes that sp_cuda_workspace takes for a request of `bytes`: sizes of a model differ by
 * little, so with some room to spare few later requests make it grow. */
size_t sp_cuda_roomy(size_t bytes);

/* Bytes that products take on a device and never give back. */
size_t sp_cuda_gemm_bytes(int device);

/* The most workspace that attention takes on a device with so much memory; 0: neither
 * FlashAttention-3 nor cuDNN is there. */
size_t sp_cuda_attention_bytes(int device, const struct sp_attention *at, size_t device_bytes);

/* Frees the workspace; its last kernel must have ended. */
void sp_cuda_release(struct sp_cuda *cuda);

#endif
