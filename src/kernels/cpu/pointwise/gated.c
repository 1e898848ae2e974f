/*
 * A gated MLP on rows that hold gate g, then up p; SwiGLU where act is SiLU. With act(g) = g S(g), see activation.h:
 *
 *   y = act(g) p
 *
 * Backward: dg = dy p act'(g), dp = dy act(g).
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/activation.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

SP_INLINE float value(enum sp_activation kind, float g, float p)
{
    return sp_activation_value(kind, g) * p;
}

struct gradients {
    float dg, dp;
};

SP_INLINE struct gradients gradient(enum sp_activation kind, float g, float p, float dy)
{
    struct sp_activation_point at = sp_activation_at(kind, g);

    return (struct gradients){dy * p * at.slope, dy * at.low * at.s};
}

/* A row of u and du holds f gates, then f ups. */
SP_INLINE void forward_row(enum sp_activation kind, enum sp_dtype type, size_t f, const void *gate,
                           void *y)
{
    const void *up = sp_from(type, gate, f);

#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, f); i++) {
        struct sp_pair g = sp_load_step(type, gate, i), p = sp_load_step(type, up, i);

        sp_store_step(type, y, i, value(kind, g.a, p.a), value(kind, g.b, p.b));
    }
    if (sp_odd(type, f))
        sp_store(type, y, f - 1, value(kind, sp_load(type, gate, f - 1), sp_load(type, up, f - 1)));
}

SP_INLINE void backward_row(enum sp_activation kind, enum sp_dtype type, size_t f, const void *gate,
                            const void *dy, void *dgate)
{
    const void *up = sp_from(type, gate, f);
    void *dup = sp_to(type, dgate, f);
    struct gradients last = {0, 0};

    if (sp_odd(type, f))
        last = gradient(kind, sp_load(type, gate, f - 1), sp_load(type, up, f - 1),
                        sp_load(type, dy, f - 1));
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, f); i++) {
        struct sp_pair g = sp_load_step(type, gate, i), p = sp_load_step(type, up, i);
        struct sp_pair d = sp_load_step(type, dy, i);
        struct gradients a = gradient(kind, g.a, p.a, d.a), b = gradient(kind, g.b, p.b, d.b);

        sp_store_step(type, dgate, i, a.dg, b.dg);
        sp_store_step(type, dup, i, a.dp, b.dp);
    }
    if (sp_odd(type, f)) {
        sp_store(type, dgate, f - 1, last.dg);
        sp_store(type, dup, f - 1, last.dp);
    }
}

SP_CLONES static void forward(enum sp_activation kind, enum sp_dtype type, size_t f, const void *u,
                              void *y)
{
    SP_EACH_ACTIVATION(forward_row, kind, type, f, u, y);
}

SP_CLONES static void backward(enum sp_activation kind, enum sp_dtype type, size_t f, const void *u,
                               const void *dy, void *du)
{
    SP_EACH_ACTIVATION(backward_row, kind, type, f, u, dy, du);
}

void sp_cpu_gated(const struct sp_backend *k, const struct sp_gated *g, const void *u, void *y)
{
    enum sp_dtype type = k->dtype;
    size_t width = (size_t)g->f;

#pragma omp parallel for if ((size_t)g->T * width > SP_TEAM_WORTH)
    for (int t = 0; t < g->T; t++)
        forward(g->act, type, width, sp_from(type, u, (size_t)t * 2 * width),
                sp_to(type, y, (size_t)t * width));
}

void sp_cpu_gated_bwd(const struct sp_backend *k, const struct sp_gated *g, const void *u,
                      const void *dy, void *du)
{
    enum sp_dtype type = k->dtype;
    size_t width = (size_t)g->f;

#pragma omp parallel for if ((size_t)g->T * width > SP_TEAM_WORTH)
    for (int t = 0; t < g->T; t++)
        backward(g->act, type, width, sp_from(type, u, (size_t)t * 2 * width),
                 sp_from(type, dy, (size_t)t * width), sp_to(type, du, (size_t)t * 2 * width));
}

void sp_gated(const struct sp_gated *g, const float *u, float *y)
{
    sp_cpu_gated(sp_cpu_backend(SP_F32), g, u, y);
}

void sp_gated_bwd(const struct sp_gated *g, const float *u, const float *dy, float *du)
{
    sp_cpu_gated_bwd(sp_cpu_backend(SP_F32), g, u, dy, du);
}
