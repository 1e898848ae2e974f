/*
 * Sums by a fixed number of lanes instead of the width of a vector. The order of additions is then the
 * same on every machine, and several vectors accumulate side by side, since one alone would wait for
 * the latency of its own additions.
 *
 * Element j goes to lane j % SP_LANES, whatever its type; the lanes of even and of odd elements are
 * kept apart, like the two elements of a step in element.h.
 */
#ifndef SP_KERNELS_LANES_H
#define SP_KERNELS_LANES_H

#include "kernels/cpu/pointwise/element.h"

enum { SP_LANES = 64 };

struct sp_lanes {
    float at[SP_LANES]; /* bf16: the even ones, then the odd ones */
};

typedef float sp_float16 __attribute__((vector_size(64)));
typedef float sp_float8 __attribute__((vector_size(32)));
typedef float sp_float4 __attribute__((vector_size(16)));

/* Halves of a vector: the compiler's own code for short loops goes through memory for each. */
SP_INLINE void sp_fold(const sp_float16 *x, float *even, float *odd)
{
    sp_float8 part[2];
    sp_float4 half[2];

    memcpy(part, x, sizeof part);
    part[0] += part[1];
    memcpy(half, part, sizeof half);
    half[0] += half[1];
    *even = half[0][0] + half[0][2];
    *odd = half[0][1] + half[0][3];
}

/* The sum of all lanes: k and k + 32, then k and k + 16, and so on; even and odd ones are added last. */
SP_INLINE float sp_sum_lanes(enum sp_dtype type, const struct sp_lanes *lanes)
{
    sp_float16 v[4];
    float even, odd, more_even, more_odd;

    memcpy(v, lanes->at, sizeof v);
    if (type != SP_BF16) {
        v[0] = (v[0] + v[2]) + (v[1] + v[3]);
        sp_fold(&v[0], &even, &odd);
        return even + odd;
    }
    v[0] += v[1];
    v[2] += v[3];
    sp_fold(&v[0], &even, &more_even);
    sp_fold(&v[2], &odd, &more_odd);
    return (even + more_even) + (odd + more_odd);
}

/* The lane of element j, by its place. */
SP_INLINE float *sp_lane(enum sp_dtype type, struct sp_lanes *lanes, size_t j)
{
    size_t k = j % SP_LANES;

    return &lanes->at[type == SP_BF16 ? k / 2 + (k % 2 ? SP_LANES / 2 : 0) : k];
}

#endif
