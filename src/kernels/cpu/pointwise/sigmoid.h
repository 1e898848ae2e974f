/*
 * The sigmoid that GELU and SwiGLU share: S = 1 / (1 + e), e = 2^t.
 */
#ifndef SP_KERNELS_SIGMOID_H
#define SP_KERNELS_SIGMOID_H

#include "kernels/cpu/vec.h"

/*
 * 2^t to 1.8e-7 relative, for -126 <= t < 128, and infinity for 128. t = n + r, |r| <= 1/2. For 2^r
 * it takes the polynomial of degree 5 with the smallest relative error (9.4e-8) among those that
 * are 1 at 0; 2^n is added to the exponent. A NaN may give any result: the caller multiplies by the
 * value that caused it.
 */
SP_INLINE float sp_exp2(float t)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves n in the low bits */
    float n = t + round, r = t - (n - round), p;

    p = 1.32694072e-3f;
    p = p * r + 9.67129413e-3f;
    p = p * r + 5.55071123e-2f;
    p = p * r + 2.40222469e-1f;
    p = p * r + 6.93147004e-1f;
    p = p * r + 1.0f;
    return sp_from_bits(sp_to_bits(p) + (sp_to_bits(n) << 23));
}

/*
 * Clamps, high > 0 and low < 0. They compare bits: with floats the compiler would branch and
 * compute each side. A NaN may become the limit.
 */
SP_INLINE float sp_at_most(float high, float x)
{
    int32_t a = (int32_t)sp_to_bits(x), b = (int32_t)sp_to_bits(high);

    return sp_from_bits((uint32_t)(a < b ? a : b)); /* negative floats are negative integers */
}

SP_INLINE float sp_at_least(float low, float x)
{
    uint32_t a = sp_to_bits(x), b = sp_to_bits(low);

    return sp_from_bits(a < b ? a : b); /* the largest integers are the most negative floats */
}

/* e = 2^t for S = 1 / (1 + e): infinite from 128 on. */
SP_INLINE float sp_exp2_saturated(float t)
{
    return sp_exp2(sp_at_most(128.0f, sp_at_least(-126.0f, t)));
}

/* 1, or NaN if x is infinite or NaN. */
SP_INLINE float sp_one_if_finite(float x)
{
    return x * 0.0f + 1.0f;
}

#endif
