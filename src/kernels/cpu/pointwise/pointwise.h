/*
 * One source for both element types: a loop reads floats and writes floats, whatever the arrays
 * hold. `type` is a constant wherever these are inlined, so no loop tests it: a cloned function
 * calls its loop once with SP_F32 and once with SP_BF16.
 *
 * A step of a loop takes one f32, or two neighbours of bf16, which are the halves of a word: then
 * widening is a shift or a mask, and no element changes its lane. In f32 there is no second element
 * of a pair, and the compiler drops the code for it. sp_load and sp_store handle an odd last bf16.
 */
#ifndef SP_KERNELS_POINTWISE_H
#define SP_KERNELS_POINTWISE_H

#include "kernels/cpu/vec.h"
#include "kernels/backend.h"
#include <stdbool.h>
#include <stddef.h>

/*
 * The f32 whose upper half is sp_bf16(x), for a result of arithmetic on bf16. NaNs need no care: a
 * NaN that arithmetic made, or passed on from a bf16, has no bits that rounding could carry into
 * the sign. A comparison would cost as much as the rounding.
 */
SP_INLINE uint32_t sp_nearest_bf16(float x)
{
    uint32_t u = sp_to_bits(x);

    return u + 0x7fffu + (u >> 16 & 1);
}

/* sp_bf16(x) of any f32, without a branch, so that it stays in vector registers. */
SP_INLINE uint16_t sp_nearest_bf16_or_nan(float x)
{
    return (uint16_t)((x == x ? sp_nearest_bf16(x) : sp_to_bits(x) | 0x400000u) >> 16);
}

/* x[i] */
SP_INLINE float sp_load(enum sp_dtype type, const void *x, size_t i)
{
    return type == SP_BF16 ? sp_bf16_value(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* y[i] = value, rounded to the nearest */
SP_INLINE void sp_store(enum sp_dtype type, void *y, size_t i, float value)
{
    if (type == SP_BF16)
        ((uint16_t *)y)[i] = (uint16_t)(sp_nearest_bf16(value) >> 16);
    else
        ((float *)y)[i] = value;
}

struct sp_pair {
    float a, b; /* in f32 b is unused */
};

/* The number of steps over n elements. */
SP_INLINE size_t sp_steps(enum sp_dtype type, size_t n)
{
    return type == SP_BF16 ? n / 2 : n;
}

SP_INLINE bool sp_odd(enum sp_dtype type, size_t n)
{
    return type == SP_BF16 && n % 2;
}

SP_INLINE struct sp_pair sp_load_step(enum sp_dtype type, const void *x, size_t i)
{
    uint32_t word;

    if (type != SP_BF16)
        return (struct sp_pair){((const float *)x)[i], 0};
    memcpy(&word, (const char *)x + i * sizeof word, sizeof word);
    return (struct sp_pair){sp_from_bits(word << 16), sp_from_bits(word & 0xffff0000u)};
}

SP_INLINE void sp_store_step(enum sp_dtype type, void *y, size_t i, float a, float b)
{
    uint32_t word;

    if (type != SP_BF16) {
        ((float *)y)[i] = a;
        return;
    }
    word = sp_nearest_bf16(a) >> 16 | (sp_nearest_bf16(b) & 0xffff0000u);
    memcpy((char *)y + i * sizeof word, &word, sizeof word);
}

/*
 * f32 arrays that accompany elements of either type (a cosine, sums of gradients) are kept in the
 * order of steps: the first of each pair, then the second of each, then the odd last. `b` is unused
 * in f32.
 */
SP_INLINE struct sp_pair sp_beside(enum sp_dtype type, const float *x, size_t n, size_t i)
{
    return (struct sp_pair){x[i], type == SP_BF16 ? x[n / 2 + i] : 0};
}

/* The place of element i of n in that order; `type` need not be a constant. */
static inline size_t sp_place(enum sp_dtype type, size_t n, size_t i)
{
    return type != SP_BF16 || (n % 2 && i == n - 1) ? i : i / 2 + (i % 2 ? n / 2 : 0);
}

/* &x[i]; `type` need not be a constant. */
static inline const void *sp_from(enum sp_dtype type, const void *x, size_t i)
{
    return (const char *)x + i * sp_dtype_bytes(type);
}

static inline void *sp_to(enum sp_dtype type, void *y, size_t i)
{
    return (char *)y + i * sp_dtype_bytes(type);
}

/*
 * Sums by a fixed number of lanes instead of the width of a vector. The order of additions is then the
 * same on every machine, and several vectors accumulate side by side, since one alone would wait for
 * the latency of its own additions.
 *
 * Element j goes to lane j % SP_LANES, whatever its type; the lanes of even and of odd elements are
 * kept apart, like the two elements of a step.
 */
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

/* ---- of pointwise/ for others ---------------------------------------------------------------- */

/* sum(n) += column sums of x(T,n), whose leading dimension is ld. */
void sp_column_sums(enum sp_dtype type, int T, int n, const void *x, int ld, float *sum);

/* y(n) = x(n), on the calling thread alone. */
void sp_bf16_widen(size_t n, const uint16_t *x, float *y);
void sp_bf16_round(size_t n, const float *x, uint16_t *y);

/* y(n) = x(n) as type `to`, x of type `from`. */
void sp_convert(enum sp_dtype from, enum sp_dtype to, size_t n, const void *x, void *y);

#endif
