/* A bias added to rows, for products whose epilogue cannot. */
#ifndef SP_BIAS_CUDA_H
#define SP_BIAS_CUDA_H

#include "kernels/cuda/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y(T,n) += bias(n), of the backend's type, y with leading dimension ldy. */
void sp_cuda_add_bias(const struct sp_backend *k, int T, int n, const void *bias, void *y, int ldy);

#ifdef __cplusplus
}
#endif

#endif
