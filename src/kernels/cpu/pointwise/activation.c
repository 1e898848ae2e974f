/*
 * GELU in the tanh form of GPT-2. As 0.5 (1 + tanh z) = 1 / (1 + e^-2z),
 *
 *   y = u S,  S = 1 / (1 + e^-2z),  z = sqrt(2/pi) (u + 0.044715 u^3)
 *
 * Backward: du = dy (S + u S (1 - S) 2 z'), z' = sqrt(2/pi) (1 + 3 0.044715 u^2),
 * with 1 - S = e^-2z S, which does not cancel.
 *
 * In the backward S is that of u clamped to +-9.5: outside, S is 0 or 1 to 1e-33, and no power
 * leaves the floats. An infinite u gives what the formula gives: y = u or NaN, du = NaN.
 */
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/pointwise/sigmoid.h"
#include "kernels/cpu/team.h"
#include "kernels/kernels.h"

#define TWICE_ROOT 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f
#define LIMIT 9.5f
#define LOG2_E 1.4426950408889634f

/* -2z in powers of 2, q = u^2 */
SP_INLINE float exponent(float u, float q)
{
    return u * (-TWICE_ROOT * LOG2_E - TWICE_ROOT * LOG2_E * CUBIC * q);
}

SP_INLINE float value(float u)
{
    return u / (1.0f + sp_exp2_saturated(exponent(u, u * u)));
}

SP_INLINE float gradient(float u, float dy)
{
    float c = sp_at_most(LIMIT, sp_at_least(-LIMIT, u)), q = c * c;
    float e = sp_exp2(exponent(c, q)), s = sp_one_if_finite(u) / (1.0f + e);

    return dy * (s + s * (e * s) * (c * (TWICE_ROOT + 3 * CUBIC * TWICE_ROOT * q)));
}

SP_INLINE void forward_loop(enum sp_dtype type, size_t n, const void *u, void *y)
{
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, n); i++) {
        struct sp_pair v = sp_load_step(type, u, i);

        sp_store_step(type, y, i, value(v.a), value(v.b));
    }
    if (sp_odd(type, n))
        sp_store(type, y, n - 1, value(sp_load(type, u, n - 1)));
}

SP_INLINE void backward_loop(enum sp_dtype type, size_t n, const void *u, const void *dy, void *du)
{
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, n); i++) {
        struct sp_pair v = sp_load_step(type, u, i), d = sp_load_step(type, dy, i);

        sp_store_step(type, du, i, gradient(v.a, d.a), gradient(v.b, d.b));
    }
    if (sp_odd(type, n))
        sp_store(type, du, n - 1, gradient(sp_load(type, u, n - 1), sp_load(type, dy, n - 1)));
}

SP_CLONES static void forward(enum sp_dtype type, size_t n, const void *u, void *y)
{
    if (type == SP_BF16)
        forward_loop(SP_BF16, n, u, y);
    else
        forward_loop(SP_F32, n, u, y);
}

SP_CLONES static void backward(enum sp_dtype type, size_t n, const void *u, const void *dy,
                               void *du)
{
    if (type == SP_BF16)
        backward_loop(SP_BF16, n, u, dy, du);
    else
        backward_loop(SP_F32, n, u, dy, du);
}

void sp_gelu_typed(enum sp_dtype type, size_t n, const void *u, void *y)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        forward(type, hi - lo, sp_from(type, u, lo), sp_to(type, y, lo));
    }
}

void sp_gelu_bwd_typed(enum sp_dtype type, size_t n, const void *u, const void *dy, void *du)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        backward(type, hi - lo, sp_from(type, u, lo), sp_from(type, dy, lo), sp_to(type, du, lo));
    }
}

void sp_gelu(size_t n, const float *u, float *y)
{
    sp_gelu_typed(SP_F32, n, u, y);
}

void sp_gelu_bwd(size_t n, const float *u, const float *dy, float *du)
{
    sp_gelu_bwd_typed(SP_F32, n, u, dy, du);
}
