/*
 * y = act(u), and du = dy act'(u); equations in activation.h.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/activation.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

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

SP_CLONES static void forward(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                              void *y)
{
    SP_EACH_ACTIVATION(forward_loop, kind, type, n, u, y);
}

SP_CLONES static void backward(enum sp_activation kind, enum sp_dtype type, size_t n, const void *u,
                               const void *dy, void *du)
{
    SP_EACH_ACTIVATION(backward_loop, kind, type, n, u, dy, du);
}

void sp_cpu_activation(const struct sp_backend *k, enum sp_activation kind, size_t n, const void *u,
                       void *y)
{
    enum sp_dtype type = k->dtype;

#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        forward(kind, type, hi - lo, sp_from(type, u, lo), sp_to(type, y, lo));
    }
}

void sp_cpu_activation_bwd(const struct sp_backend *k, enum sp_activation kind, size_t n,
                           const void *u, const void *dy, void *du)
{
    enum sp_dtype type = k->dtype;

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
    sp_cpu_activation(sp_cpu_backend(SP_F32), kind, n, u, y);
}

void sp_activation_bwd(enum sp_activation kind, size_t n, const float *u, const float *dy,
                       float *du)
{
    sp_cpu_activation_bwd(sp_cpu_backend(SP_F32), kind, n, u, dy, du);
}
