/* What the files that make up struct sp_cuda share and nobody else needs. */
#ifndef SP_CUDA_STATE_H
#define SP_CUDA_STATE_H

#include "kernels/cuda/device/device.h"

/* Adds to sp_cuda_held_bytes. */
void sp_cuda_hold(int64_t bytes);

/* What sp_cuda_workspace takes where so much is wanted: sizes of a model differ by little, and with some
 * room more few of them grow it again. */
size_t sp_cuda_roomy(size_t bytes);

/* What products take for good on a device. */
size_t sp_cuda_gemm_bytes(int device);

/* What attention takes of the workspace, at most, on a device with so much memory; 0: neither FlashAttention-3 nor
 * cuDNN is there. */
size_t sp_cuda_attention_bytes(int device, const struct sp_attention *at, size_t device_bytes);

/* Frees the workspace, whose last kernel has ended. */
void sp_cuda_release(struct sp_cuda *cuda);

#endif
