/*
 * Kernels on columns and activations that other files call: the gradient of GELU, and sums over rows
 * in one order, by partial sums in the workspace.
 */
#ifndef SP_CUDA_MLP_H
#define SP_CUDA_MLP_H

#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* du = dy gelu_tanh'(u), n elements of the backend's type; du may alias dy or u. */
void sp_cuda_gelu_bwd(const struct sp_backend *k, size_t n, const void *u, const void *dy,
                      void *du);

/* sum(n) += the sums of the columns of x(T,n), rows ldx elements apart, of the backend's type.
 * Takes the workspace. */
void sp_cuda_column_sums(const struct sp_backend *k, int T, int n, const void *x, int ldx,
                         float *sum);

/* sum(n) += part(parts,n), rows `stride` floats apart. Leaves the workspace alone, where part may
 * lie. */
void sp_cuda_add_partials(const struct sp_backend *k, int parts, int n, const float *part,
                          size_t stride, float *sum);

#ifdef __cplusplus
}
#endif

#endif
