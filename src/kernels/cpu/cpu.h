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

void sp_cpu_adamw(const struct sp_backend *k, size_t n, const struct sp_adamw *hp, float *w,
                  float *g, float *m, float *v, void *w_low);

/* A table of the file's own functions, by the names of their places, and of those above. */
#define SP_CPU_TABLE(type)                                                                         \
    {                                                                                              \
        .name = "cpu", .dtype = type, .linear = linear, .linear_add = linear_add,                  \
        .linear_gelu = linear_gelu, .linear_dx = linear_dx, .linear_dx_gelu = linear_dx_gelu,      \
        .linear_dw = linear_dw, .norm = norm, .norm_apply = norm_apply, .norm_bwd = norm_bwd,      \
        .rope = rope, .attention = attention, .attention_bwd = attention_bwd, .gelu = gelu,        \
        .swiglu = swiglu, .swiglu_bwd = swiglu_bwd, .embed = embed, .embed_bwd = embed_bwd,        \
        .cross_entropy = cross_entropy, .add = add, .round = round_to, .adamw = sp_cpu_adamw,      \
        .add_f32 = sp_cpu_add_f32, .sumsq = sp_cpu_sumsq, .clear = sp_cpu_clear,                   \
        .copy = sp_cpu_copy, .copy_rows = sp_cpu_copy_rows,                                        \
        .first_not_finite = sp_cpu_first_not_finite,                                               \
    }

#endif
