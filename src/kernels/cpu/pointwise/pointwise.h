/* What the streaming kernels share with others: arrays of either element type, read and written as
 * floats (element.h). */
#ifndef SP_KERNELS_POINTWISE_H
#define SP_KERNELS_POINTWISE_H

#include "kernels/cpu/pointwise/element.h"
#include "kernels/kernels.h"

/* sum(n) += column sums of x(T,n), whose leading dimension is ld. */
void sp_column_sums(enum sp_dtype type, int T, int n, const void *x, int ld, float *sum);

/* y(n) = x(n), on the calling thread alone. */
void sp_bf16_widen(size_t n, const uint16_t *x, float *y);
void sp_bf16_round(size_t n, const float *x, uint16_t *y);

/* y(n) = x(n) as type `to`, x of type `from`. */
void sp_convert(enum sp_dtype from, enum sp_dtype to, size_t n, const void *x, void *y);

#endif
