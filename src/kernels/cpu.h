/*
 * What the CPU's two tables share.
 */
#ifndef SP_KERNELS_CPU_H
#define SP_KERNELS_CPU_H

#include "kernels/backend.h"

extern const struct sp_backend sp_cpu_bf16;

void sp_cpu_add_f32(const struct sp_backend *k, size_t n, const float *x, float *y);
void sp_cpu_sumsq(const struct sp_backend *k, size_t n, const float *g, double *sum);
void sp_cpu_clear(const struct sp_backend *k, size_t bytes, void *y);
void sp_cpu_copy(const struct sp_backend *k, size_t bytes, const void *x, void *y);
void sp_cpu_copy_rows(const struct sp_backend *k, size_t rows, size_t bytes, const void *x,
                      size_t from, void *y, size_t to);
size_t sp_cpu_first_not_finite(const struct sp_backend *k, enum sp_dtype dtype, const void *x,
                               size_t n);

#define SP_CPU_ANY_TYPE                                                                            \
    .add_f32 = sp_cpu_add_f32, .sumsq = sp_cpu_sumsq, .clear = sp_cpu_clear, .copy = sp_cpu_copy,  \
    .copy_rows = sp_cpu_copy_rows, .first_not_finite = sp_cpu_first_not_finite

#endif
