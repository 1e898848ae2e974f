/* Kernels that follow a product whose epilogue cannot do their work; column sums are in sums.h. */
#ifndef SP_CUDA_EPILOGUES_H
#define SP_CUDA_EPILOGUES_H

#include "kernels/cuda/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y(T,n) += bias(n), of the backend's type, y with leading dimension ldy. */
void sp_cuda_add_bias(const struct sp_backend *k, int T, int n, const void *bias, void *y, int ldy);

/* du = dy act'(u), n elements of the backend's type; du may alias dy or u. */
void sp_cuda_activation_bwd(const struct sp_backend *k, enum sp_activation act, size_t n,
                            const void *u, const void *dy, void *du);

#ifdef __cplusplus
}
#endif

#endif
