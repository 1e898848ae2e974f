/*
 * y = act(u), and du = dy act'(u); equations in activation.h.
 */
#include "kernels/cpu/pointwise/activation.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "kernels/kernels.h"

SP_INLINE void forward_loop(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                            void *y)
{
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, n); i++) {
        struct sp_pair v = sp_load_step(type, u, i);

        sp_store_step(type, y, i, sp_activation_value(kind, v.a), sp_activation_value(kind, v.b));
    }
    if (sp_odd(type, n))
        sp_store(type, y, n - 1, sp_activation_value(kind, sp_load(type, u, n - 1)));
}

SP_INLINE float gradient(enum sp_activation kind, float u, float dy)
{
    return dy * sp_activation_at(kind, u).slope;
}

SP_INLINE void backward_loop(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                             const void *dy, void *du)
{
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, n); i++) {
        struct sp_pair v = sp_load_step(type, u, i), d = sp_load_step(type, dy, i);

        sp_store_step(type, du, i, gradient(kind, v.a, d.a), gradient(kind, v.b, d.b));
    }
    if (sp_odd(type, n))
        sp_store(type, du, n - 1,
                 gradient(kind, sp_load(type, u, n - 1), sp_load(type, dy, n - 1)));
}

/* A loop for each kind and type. */
#define FOR_EACH(loop, kind, type, ...)                                                            \
    do {                                                                                           \
        if (type == SP_BF16)                                                                       \
            loop(kind, SP_BF16, __VA_ARGS__);                                                      \
        else                                                                                       \
            loop(kind, SP_F32, __VA_ARGS__);                                                       \
    } while (0)

SP_CLONES static void forward(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                              void *y)
{
    if (kind == SP_GELU_TANH)
        FOR_EACH(forward_loop, SP_GELU_TANH, type, n, u, y);
    else if (kind == SP_GELU)
        FOR_EACH(forward_loop, SP_GELU, type, n, u, y);
    else if (kind == SP_GELU_QUICK)
        FOR_EACH(forward_loop, SP_GELU_QUICK, type, n, u, y);
    else
        FOR_EACH(forward_loop, SP_SILU, type, n, u, y);
}

SP_CLONES static void backward(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                               const void *dy, void *du)
{
    if (kind == SP_GELU_TANH)
        FOR_EACH(backward_loop, SP_GELU_TANH, type, n, u, dy, du);
    else if (kind == SP_GELU)
        FOR_EACH(backward_loop, SP_GELU, type, n, u, dy, du);
    else if (kind == SP_GELU_QUICK)
        FOR_EACH(backward_loop, SP_GELU_QUICK, type, n, u, dy, du);
    else
        FOR_EACH(backward_loop, SP_SILU, type, n, u, dy, du);
}

void sp_activation_typed(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                         void *y)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        forward(kind, type, hi - lo, sp_from(type, u, lo), sp_to(type, y, lo));
    }
}

void sp_activation_bwd_typed(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                             const void *dy, void *du)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        backward(kind, type, hi - lo, sp_from(type, u, lo), sp_from(type, dy, lo),
                 sp_to(type, du, lo));
    }
}

void sp_activation(enum sp_activation kind, size_t n, const float *u, float *y)
{
    sp_activation_typed(kind, SP_F32, n, u, y);
}

void sp_activation_bwd(enum sp_activation kind, size_t n, const float *u, const float *dy,
                       float *du)
{
    sp_activation_bwd_typed(kind, SP_F32, n, u, dy, du);
}
