/*
 * Functions of kernels.h that stream through memory, on arrays of either element type, which is
 * their first argument. `void *` is an array of that type, `float *` is always f32, as in
 * backend.h. Arithmetic is f32 in registers, and results are rounded once: a bf16 result is that of
 * the f32 kernel on the widened inputs, rounded to the nearest.
 */
#ifndef SP_KERNELS_POINTWISE_H
#define SP_KERNELS_POINTWISE_H

#include "kernels/cpu/pointwise/element.h"
#include "kernels/kernels.h"

void sp_norm_typed(enum sp_dtype type, const struct sp_norm *n, const void *x, void *y,
                   float *stats);
void sp_norm_apply_typed(enum sp_dtype type, const struct sp_norm *n, const void *x,
                         const float *stats, void *y);
void sp_norm_bwd_typed(enum sp_dtype type, const struct sp_norm *n, const void *x,
                       const float *stats, const struct sp_norm_bwd *g);

void sp_rope_typed(enum sp_dtype type, const struct sp_rotation *r, bool inverse, void *x);

void sp_activation_typed(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                         void *y);
void sp_activation_bwd_typed(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                             const void *dy, void *du);
void sp_gated_typed(enum sp_dtype type, const struct sp_gated *g, const void *u, void *y);
void sp_gated_bwd_typed(enum sp_dtype type, const struct sp_gated *g, const void *u, const void *dy,
                        void *du);

void sp_embed_typed(enum sp_dtype type, const struct sp_embed *e, const void *table,
                    const void *positions, void *x);
void sp_embed_bwd_typed(enum sp_dtype type, const struct sp_embed *e, const void *dx, float *dtable,
                        float *dpositions);

/* sum(n) += column sums of x(T,n), whose leading dimension is ld. */
void sp_column_sums(enum sp_dtype type, int T, int n, const void *x, int ld, float *sum);

void sp_add_typed(enum sp_dtype type, size_t n, const void *x, void *y);
/* y += the sum of all `parts` arrays x. */
void sp_add_parts_typed(enum sp_dtype type, size_t n, int parts, const void *const *x, void *y);

/* y(n) = x(n), on the calling thread alone. */
void sp_bf16_widen(size_t n, const uint16_t *x, float *y);
void sp_bf16_round(size_t n, const float *x, uint16_t *y);

/* y(n) = x(n) as type `to`, x of type `from`. */
void sp_convert(enum sp_dtype from, enum sp_dtype to, size_t n, const void *x, void *y);

/* sp_adamw; `low` is bf16. */
void sp_adamw_rounded(const struct sp_adamw *hp, const struct sp_adamw_arrays *a);

#endif
