/*
 * SwiGLU on rows that hold gate g, then up p:
 *
 *   y = g S p,  S = 1 / (1 + e^-g)
 *
 * Backward: dg = dy p (S + g S (1 - S)), dp = dy g S, with 1 - S = e^-g S.
 *
 * In the backward S is that of g clamped to +-86: outside, S is 0 or 1 to 1e-37, and no power
 * leaves the floats. An infinite g gives what the formula gives: y = g p or NaN, dg and dp NaN.
 */
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/pointwise/sigmoid.h"
#include "kernels/cpu/team.h"
#include "kernels/kernels.h"

#define LIMIT 86.0f
#define LOG2_E 1.4426950408889634f

SP_INLINE float value(float g, float p)
{
    return g / (1.0f + sp_exp2_saturated(-LOG2_E * g)) * p;
}

struct gradients {
    float dg, dp;
};

SP_INLINE struct gradients gradient(float g, float p, float dy)
{
    float low = sp_at_least(-LIMIT, g), c = sp_at_most(LIMIT, low);
    float e = sp_exp2(-LOG2_E * c), s = sp_one_if_finite(g) / (1.0f + e);

    return (struct gradients){dy * p * (s + c * (s * (e * s))), dy * low * s};
}

/* A row of u and du holds f gates, then f ups. */
SP_INLINE void forward_row(enum sp_dtype type, size_t f, const void *gate, void *y)
{
    const void *up = sp_from(type, gate, f);

#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, f); i++) {
        struct sp_pair g = sp_load_step(type, gate, i), p = sp_load_step(type, up, i);

        sp_store_step(type, y, i, value(g.a, p.a), value(g.b, p.b));
    }
    if (sp_odd(type, f))
        sp_store(type, y, f - 1, value(sp_load(type, gate, f - 1), sp_load(type, up, f - 1)));
}

SP_INLINE void backward_row(enum sp_dtype type, size_t f, const void *gate, const void *dy,
                            void *dgate)
{
    const void *up = sp_from(type, gate, f);
    void *dup = sp_to(type, dgate, f);
    struct gradients last = {0, 0};

    if (sp_odd(type, f))
        last = gradient(sp_load(type, gate, f - 1), sp_load(type, up, f - 1),
                        sp_load(type, dy, f - 1));
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, f); i++) {
        struct sp_pair g = sp_load_step(type, gate, i), p = sp_load_step(type, up, i);
        struct sp_pair d = sp_load_step(type, dy, i);
        struct gradients a = gradient(g.a, p.a, d.a), b = gradient(g.b, p.b, d.b);

        sp_store_step(type, dgate, i, a.dg, b.dg);
        sp_store_step(type, dup, i, a.dp, b.dp);
    }
    if (sp_odd(type, f)) {
        sp_store(type, dgate, f - 1, last.dg);
        sp_store(type, dup, f - 1, last.dp);
    }
}

SP_CLONES static void forward(enum sp_dtype type, size_t f, const void *u, void *y)
{
    if (type == SP_BF16)
        forward_row(SP_BF16, f, u, y);
    else
        forward_row(SP_F32, f, u, y);
}

SP_CLONES static void backward(enum sp_dtype type, size_t f, const void *u, const void *dy,
                               void *du)
{
    if (type == SP_BF16)
        backward_row(SP_BF16, f, u, dy, du);
    else
        backward_row(SP_F32, f, u, dy, du);
}

void sp_swiglu_typed(enum sp_dtype type, int T, int f, const void *u, void *y)
{
    size_t width = (size_t)f;

#pragma omp parallel for if ((size_t)T * width > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++)
        forward(type, width, sp_from(type, u, (size_t)t * 2 * width),
                sp_to(type, y, (size_t)t * width));
}

void sp_swiglu_bwd_typed(enum sp_dtype type, int T, int f, const void *u, const void *dy, void *du)
{
    size_t width = (size_t)f;

#pragma omp parallel for if ((size_t)T * width > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++)
        backward(type, width, sp_from(type, u, (size_t)t * 2 * width),
                 sp_from(type, dy, (size_t)t * width), sp_to(type, du, (size_t)t * 2 * width));
}

void sp_swiglu(int T, int f, const float *u, float *y)
{
    sp_swiglu_typed(SP_F32, T, f, u, y);
}

void sp_swiglu_bwd(int T, int f, const float *u, const float *dy, float *du)
{
    sp_swiglu_bwd_typed(SP_F32, T, f, u, dy, du);
}
