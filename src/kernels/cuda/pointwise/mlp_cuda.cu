/*
 * Activations by themselves and gated, equations in cpu/pointwise/activation.h: one pass over memory, 16 bytes an access.
 * The floor is what is read and written.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/epilogues.h"

#define TWICE_ROOT 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f
#define QUICK 1.702f
#define ROOT_HALF 0.7071067811865476f
#define NORMAL 0.3989422804014327f /* 1 / sqrt(2 pi) */

enum { ELEMENTWISE_STEPS = 2 /* accesses in flight per array and thread */ };

/* e^-x, finite: from e^80 on, 1 / (1 + e) is 0 to the products it goes into. NaN becomes e^80. */
template <typename T> SP_DEVICE float exp_minus(float x)
{
    return sp_exp<T>(fminf(-x, 80.0f));
}

/* The argument of the sigmoid, and its derivative. */
template <int ACT> SP_DEVICE float sigmoid_of(float u)
{
    return ACT == SP_GELU_TANH ? TWICE_ROOT * u * (1.0f + CUBIC * u * u)
           : ACT == SP_SILU    ? u
                               : QUICK * u;
}

template <int ACT> SP_DEVICE float sigmoid_slope(float u)
{
    return ACT == SP_GELU_TANH ? TWICE_ROOT * (1.0f + 3 * CUBIC * u * u)
           : ACT == SP_SILU    ? 1.0f
                               : QUICK;
}

template <typename T, int ACT> SP_DEVICE float act_value(float u)
{
    if (ACT == SP_GELU)
        return 0.5f * u * erfcf(-ROOT_HALF * u);
    return sp_ratio<T>(u, 1.0f + exp_minus<T>(sigmoid_of<ACT>(u)));
}

/* *s: what the value is u times. */
template <typename T, int ACT> SP_DEVICE float act_gradient(float u, float *s)
{
    float e;

    if (ACT == SP_GELU) {
        *s = 0.5f * erfcf(-ROOT_HALF * u);
        return *s + u * (NORMAL * exp_minus<T>(0.5f * u * u));
    }
    e = exp_minus<T>(sigmoid_of<ACT>(u));
    *s = sp_ratio<T>(1.0f, 1.0f + e);
    return *s + u * (*s * (e * *s)) * sigmoid_slope<ACT>(u);
}

/* dy NULL: out = act(u). */
template <typename T, int V, int ACT>
SP_KERNEL void act_kernel(size_t first, size_t accesses, const T *u, const T *dy, T *out)
{
    size_t own = (size_t)blockIdx.x * blockDim.x * ELEMENTWISE_STEPS + threadIdx.x;
    float x[ELEMENTWISE_STEPS][V], d[ELEMENTWISE_STEPS][V], s;

#pragma unroll
    for (int i = 0; i < ELEMENTWISE_STEPS; i++) {
        size_t access = own + (size_t)i * blockDim.x, at = first + access * V;

        if (access < accesses) {
            sp_load<V>(u + at, x[i]);
            if (dy)
                sp_load<V>(dy + at, d[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_STEPS; i++) {
        size_t access = own + (size_t)i * blockDim.x;

        if (access >= accesses)
            continue;
        for (int v = 0; v < V; v++)
            x[i][v] = dy ? d[i][v] * act_gradient<T, ACT>(x[i][v], &s) : act_value<T, ACT>(x[i][v]);
        sp_store<V>(out + first + access * V, x[i]);
    }
}

template <typename T, int ACT>
static void act_both(const struct sp_backend *k, size_t n, const void *u, const void *dy, void *out)
{
    const T *from = (const T *)u, *by = (const T *)dy;
    T *to = (T *)out;
    bool wide = sp_is_wide(from, 0) && sp_is_wide(by, 0) && sp_is_wide(to, 0);

    sp_launch_over<sp_wide<T>::N>(k, dy ? "activation_bwd" : "activation", n, wide,
                                  SP_BLOCK * ELEMENTWISE_STEPS, act_kernel<T, sp_wide<T>::N, ACT>,
                                  act_kernel<T, 1, ACT>, from, by, to);
}

/* One block has up to blockDim.x * V columns of one row; `pieces` of them make the row. */
template <typename T, int V, int ACT>
SP_KERNEL void gated_kernel(int f, unsigned pieces, const T *u, T *y)
{
    size_t row = blockIdx.x / pieces;
    int c = (int)((blockIdx.x % pieces) * blockDim.x + threadIdx.x) * V;
    float gate[V], up[V];

    if (c >= f)
        return;
    u += row * 2 * (size_t)f + c;
    sp_load<V>(u, gate);
    sp_load<V>(u + f, up);
    for (int v = 0; v < V; v++)
        up[v] *= act_value<T, ACT>(gate[v]);
    sp_store<V>(y + row * (size_t)f + c, up);
}

/* du may be u: a thread reads what it will overwrite. */
template <typename T, int V, int ACT>
SP_KERNEL void gated_bwd_kernel(int f, unsigned pieces, const T *u, const T *dy, T *du)
{
    size_t row = blockIdx.x / pieces;
    int c = (int)((blockIdx.x % pieces) * blockDim.x + threadIdx.x) * V;
    float gate[V], up[V], d[V];

    if (c >= f)
        return;
    u += row * 2 * (size_t)f + c;
    du += row * 2 * (size_t)f + c;
    sp_load<V>(u, gate);
    sp_load<V>(u + f, up);
    sp_load<V>(dy + row * (size_t)f + c, d);
    for (int v = 0; v < V; v++) {
        float g = gate[v], s, slope = act_gradient<T, ACT>(g, &s);

        gate[v] = d[v] * up[v] * slope;
        up[v] = d[v] * g * s;
    }
    sp_store<V>(du, gate);
    sp_store<V>(du + f, up);
}

template <typename T, int ACT>
static void gated_as(const struct sp_backend *k, int rows, int f, const void *u, void *y)
{
    size_t width = (size_t)f;
    bool wide = sp_is_wide((const T *)u, width) && sp_is_wide((const T *)y, width);
    struct sp_row_split s = sp_split_row(width / (wide ? (size_t)sp_wide<T>::N : 1));

    sp_launch(k, "gated", wide ? gated_kernel<T, sp_wide<T>::N, ACT> : gated_kernel<T, 1, ACT>,
              (unsigned)rows * s.pieces, s.threads, 0, f, s.pieces, (const T *)u, (T *)y);
}

template <typename T, int ACT>
static void gated_bwd_as(const struct sp_backend *k, int rows, int f, const void *u, const void *dy,
                         void *du)
{
    size_t width = (size_t)f;
    bool wide = sp_is_wide((const T *)u, width) && sp_is_wide((const T *)dy, width) &&
                sp_is_wide((const T *)du, width);
    struct sp_row_split s = sp_split_row(width / (wide ? (size_t)sp_wide<T>::N : 1));

    sp_launch(k, "gated_bwd",
              wide ? gated_bwd_kernel<T, sp_wide<T>::N, ACT> : gated_bwd_kernel<T, 1, ACT>,
              (unsigned)rows * s.pieces, s.threads, 0, f, s.pieces, (const T *)u, (const T *)dy,
              (T *)du);
}

/* The function of each kind: f<T, kind>. */
#define OF_KIND(f, act)                                                                            \
    ((act) == SP_GELU_TANH    ? f<T, SP_GELU_TANH>                                                 \
     : (act) == SP_GELU       ? f<T, SP_GELU>                                                      \
     : (act) == SP_GELU_QUICK ? f<T, SP_GELU_QUICK>                                                \
                              : f<T, SP_SILU>)

template <typename T>
static void act_bwd(const struct sp_backend *k, enum sp_activation act, size_t n, const void *u,
                    const void *dy, void *du)
{
    OF_KIND(act_both, act)(k, n, u, dy, du);
}

extern "C" void sp_cuda_activation_bwd(const struct sp_backend *k, enum sp_activation act, size_t n,
                                       const void *u, const void *dy, void *du)
{
    (k->dtype == SP_BF16 ? act_bwd<bf16> : act_bwd<float>)(k, act, n, u, dy, du);
}

template <typename T>
static void act(const struct sp_backend *k, enum sp_activation kind, size_t n, const void *u,
                void *y)
{
    OF_KIND(act_both, kind)(k, n, u, NULL, y);
}

template <typename T>
static void gated(const struct sp_backend *k, const struct sp_gated *g, const void *u, void *y)
{
    OF_KIND(gated_as, g->act)(k, g->T, g->f, u, y);
}

template <typename T>
static void gated_bwd(const struct sp_backend *k, const struct sp_gated *g, const void *u,
                      const void *dy, void *du)
{
    OF_KIND(gated_bwd_as, g->act)(k, g->T, g->f, u, dy, du);
}

template <typename T> static void mlp_fill(struct sp_backend *backend)
{
    backend->act = act<T>;
    backend->gated = gated<T>;
    backend->gated_bwd = gated_bwd<T>;
}

extern "C" void sp_cuda_mlp_fill(struct sp_backend *backend)
{
    (backend->dtype == SP_BF16 ? mlp_fill<bf16> : mlp_fill<float>)(backend);
}
