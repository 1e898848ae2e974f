/*
 * Activations of one element, in f32: y = u S(u), and dy/du = S + u S'.
 *
 * GELU-tanh, quick GELU and SiLU have a sigmoid S = 1 / (1 + e), e = 2^t = e^-z, z = a u + b u^3; 0.5 (1 + tanh x) is the
 * sigmoid of 2x. Then S' = S (1 - S) z', with 1 - S = e S, which does not cancel.
 *
 * GELU has the normal distribution: with x = |u|, Q(x) = 0.5 erfc(x / sqrt 2) = e^(-x^2/2) R(x), S is Q(x) for u < 0 and
 * 1 - Q(x) otherwise, S' = e^(-x^2/2) / sqrt(2 pi). R by a polynomial in 1 / (1 + x/4), relative error 3e-7.
 *
 * For S, u is clamped to where it is 0 or 1 to 1e-33, and no power leaves the floats; values are then `low` S, with u
 * clamped from below only. An infinite u gives what the formula gives: y = u or NaN, gradients NaN.
 */
#ifndef SP_KERNELS_ACTIVATION_H
#define SP_KERNELS_ACTIVATION_H

#include "kernels/activation.h"
#include "kernels/cpu/vec.h"
#include <math.h>

#define SP_LOG2_E 1.4426950408889634f
#define SP_TWICE_ROOT 1.5957691216057308f /* 2 sqrt(2/pi) */
#define SP_CUBIC 0.044715f
#define SP_QUICK 1.702f
#define SP_NORMAL 0.3989422804014327f /* 1 / sqrt(2 pi) */

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

/* `kind` is a constant wherever these are inlined. */
SP_INLINE float sp_activation_limit(enum sp_activation kind)
{
    return kind == SP_GELU_TANH    ? 9.5f
           : kind == SP_GELU       ? 13.0f
           : kind == SP_GELU_QUICK ? 50.0f
                                   : 86.0f;
}

/* -z in powers of 2 */
SP_INLINE float sp_sigmoid_exponent(enum sp_activation kind, float u)
{
    if (kind == SP_GELU_TANH)
        return u * (-SP_TWICE_ROOT * SP_LOG2_E - SP_TWICE_ROOT * SP_LOG2_E * SP_CUBIC * (u * u));
    return (kind == SP_GELU_QUICK ? -SP_QUICK * SP_LOG2_E : -SP_LOG2_E) * u;
}

/* z' */
SP_INLINE float sp_sigmoid_slope(enum sp_activation kind, float u)
{
    if (kind == SP_GELU_TANH)
        return SP_TWICE_ROOT + 3 * SP_CUBIC * SP_TWICE_ROOT * (u * u);
    return kind == SP_GELU_QUICK ? SP_QUICK : 1.0f;
}

/* S of |u| <= 13; *e = e^(-u^2/2) */
SP_INLINE float sp_normal(float u, float *e)
{
    float x = u < 0 ? -u : u, t = 1.0f / (1.0f + 0.25f * x), p, q;

    *e = sp_exp2(-0.5f * SP_LOG2_E * (x * x));
    p = 2.629547656e-2f;
    p = p * t - 1.556365537e-1f;
    p = p * t + 3.020764394e-1f;
    p = p * t - 2.127485230e-1f;
    p = p * t + 2.066970140e-1f;
    p = p * t + 3.075881851e-2f;
    p = p * t + 1.043218531e-1f;
    p = p * t + 9.843279090e-2f;
    p = p * t + 9.980265841e-2f;
    q = *e * (p * t);
    return u < 0 ? q : 1.0f - q;
}

SP_INLINE float sp_activation_value(enum sp_activation kind, float u)
{
    const float limit = sp_activation_limit(kind);
    float low, e, y;

    if (kind != SP_GELU)
        return u / (1.0f + sp_exp2_saturated(sp_sigmoid_exponent(kind, u)));
    low = sp_at_least(-limit, u);
    y = low * sp_normal(sp_at_most(limit, low), &e);
    return u > -INFINITY ? y : u * 0.0f; /* NaN too */
}

/* dy/du = slope, and y = low s */
struct sp_activation_point {
    float slope, low, s;
};

SP_INLINE struct sp_activation_point sp_activation_at(enum sp_activation kind, float u)
{
    const float limit = sp_activation_limit(kind);
    float low = sp_at_least(-limit, u), c = sp_at_most(limit, low), e, s;

    if (kind == SP_GELU) {
        s = sp_normal(c, &e) * sp_one_if_finite(u);
        return (struct sp_activation_point){s + c * (e * SP_NORMAL), low, s};
    }
    e = sp_exp2(sp_sigmoid_exponent(kind, c));
    s = sp_one_if_finite(u) / (1.0f + e);
    return (struct sp_activation_point){s + s * (e * s) * (c * sp_sigmoid_slope(kind, c)), low, s};
}

/* loop(kind, type, ...), with constants for both, so that each pair of them is a loop without
 * tests. */
#define SP_EACH_ACTIVATION(loop, kind, type, ...)                                                  \
    switch (kind) {                                                                                \
    case SP_GELU_TANH:                                                                             \
        SP_EACH_TYPE(loop, SP_GELU_TANH, type, __VA_ARGS__);                                       \
        break;                                                                                     \
    case SP_GELU:                                                                                  \
        SP_EACH_TYPE(loop, SP_GELU, type, __VA_ARGS__);                                            \
        break;                                                                                     \
    case SP_GELU_QUICK:                                                                            \
        SP_EACH_TYPE(loop, SP_GELU_QUICK, type, __VA_ARGS__);                                      \
        break;                                                                                     \
    default:                                                                                       \
        SP_EACH_TYPE(loop, SP_SILU, type, __VA_ARGS__);                                            \
    }
#define SP_EACH_TYPE(loop, kind, type, ...)                                                        \
    if (type == SP_BF16)                                                                           \
        loop(kind, SP_BF16, __VA_ARGS__);                                                          \
    else                                                                                           \
        loop(kind, SP_F32, __VA_ARGS__)

#endif
