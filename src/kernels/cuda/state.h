/* What the files that make up struct sp_cuda share and nobody else needs. */
#ifndef SP_CUDA_STATE_H
#define SP_CUDA_STATE_H

#include "kernels/cuda/device.h"

/* Adds to sp_cuda_held_bytes. */
void sp_cuda_hold(int64_t bytes);

/* Frees the workspace, whose last kernel has ended. */
void sp_cuda_release(struct sp_cuda *cuda);

#endif
