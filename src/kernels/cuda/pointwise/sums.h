/* Sums in one order, whatever the scheduling, that several kernels end with. */
#ifndef SP_CUDA_SUMS_H
#define SP_CUDA_SUMS_H

#include "kernels/cuda/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sum(n) += the sums of the columns of x(T,n), rows ldx elements apart, of the backend's type.
 * Takes the workspace. */
void sp_cuda_column_sums(const struct sp_backend *k, int T, int n, const void *x, int ldx,
                         float *sum);

/* sum(n) += the columns of part(parts,n), rows `stride` floats apart, which may be the workspace.
 * */
void sp_cuda_add_partials(const struct sp_backend *k, int parts, int n, const float *part,
                          size_t stride, float *sum);

/* *sum += part(parts), which may be the workspace. */
void sp_cuda_add_doubles(const struct sp_backend *k, int parts, const double *part, double *sum);

#ifdef __cplusplus
}
#endif

#endif
