/* What the products call of the activations: the gradient of GELU; and sums over rows, sums.h. */
#ifndef SP_CUDA_MLP_H
#define SP_CUDA_MLP_H

#include "kernels/cuda/pointwise/sums.h"

#ifdef __cplusplus
extern "C" {
#endif

/* du = dy gelu_tanh'(u), n elements of the backend's type; du may alias dy or u. */
void sp_cuda_gelu_bwd(const struct sp_backend *k, size_t n, const void *u, const void *dy,
                      void *du);

#ifdef __cplusplus
}
#endif

#endif
