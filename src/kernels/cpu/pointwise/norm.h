/* What the passes of norm.c and norm_bwd.c share. */
#ifndef SP_KERNELS_NORM_H
#define SP_KERNELS_NORM_H

#include "kernels/dtype.h"

/* f32, in the order of steps of element.h; bias may be NULL. */
struct sp_affine {
    const float *gain, *bias;
};

/* Of f32 the arrays themselves, of bf16 widened copies: scratch of the thread that starts a region. */
struct sp_affine sp_affine(enum sp_dtype type, size_t h, const void *gain, const void *bias);

#endif
