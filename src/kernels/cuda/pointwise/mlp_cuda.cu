/*
 * GELU and SwiGLU, equations in gelu.c and swiglu.c: one pass over memory, 16 bytes an access. The
 * floor is what is read and written.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/epilogues.h"

#define TWICE_ROOT 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f

enum { ELEMENTWISE_STEPS = 2 /* accesses in flight per array and thread */ };

/* e^-x, finite: from e^80 on, 1 / (1 + e) is 0 to the products it goes into. NaN becomes e^80. */
template <typename T> SP_DEVICE float exp_minus(float x)
{
    return sp_exp<T>(fminf(-x, 80.0f));
}

template <typename T> SP_DEVICE float gelu_value(float u)
{
    return sp_ratio<T>(u, 1.0f + exp_minus<T>(TWICE_ROOT * u * (1.0f + CUBIC * u * u)));
}

template <typename T> SP_DEVICE float gelu_gradient(float u)
{
    float e = exp_minus<T>(TWICE_ROOT * u * (1.0f + CUBIC * u * u));
    float s = sp_ratio<T>(1.0f, 1.0f + e);

    return s + u * (s * (e * s)) * TWICE_ROOT * (1.0f + 3 * CUBIC * u * u);
}

/* dy NULL: out = gelu(u). */
template <typename T, int V>
SP_KERNEL void gelu_kernel(size_t accesses, const T *u, const T *dy, T *out)
{
    size_t first = (size_t)blockIdx.x * blockDim.x * ELEMENTWISE_STEPS + threadIdx.x;
    float x[ELEMENTWISE_STEPS][V], d[ELEMENTWISE_STEPS][V];

#pragma unroll
    for (int i = 0; i < ELEMENTWISE_STEPS; i++) {
        size_t at = first + (size_t)i * blockDim.x;

        if (at < accesses) {
            sp_load<V>(u + at * V, x[i]);
            if (dy)
                sp_load<V>(dy + at * V, d[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < ELEMENTWISE_STEPS; i++) {
        size_t at = first + (size_t)i * blockDim.x;

        if (at >= accesses)
            continue;
        for (int v = 0; v < V; v++)
            x[i][v] = dy ? d[i][v] * gelu_gradient<T>(x[i][v]) : gelu_value<T>(x[i][v]);
        sp_store<V>(out + at * V, x[i]);
    }
}

/* The whole accesses of 16 bytes, then what is left. */
template <typename T>
static void gelu_both(const struct sp_backend *k, size_t n, const void *u, const void *dy,
                      void *out)
{
    const size_t each = SP_BLOCK * ELEMENTWISE_STEPS;
    const T *from = (const T *)u, *by = (const T *)dy;
    T *to = (T *)out;
    bool wide = sp_is_wide(from, 0) && sp_is_wide(by, 0) && sp_is_wide(to, 0);
    size_t accesses = wide ? n / sp_wide<T>::N : 0, done = accesses * sp_wide<T>::N;
    const char *name = dy ? "gelu_bwd" : "gelu";

    sp_launch(k, name, gelu_kernel<T, sp_wide<T>::N>, sp_blocks(accesses, each), SP_BLOCK, 0,
              accesses, from, by, to);
    sp_launch(k, name, gelu_kernel<T, 1>, sp_blocks(n - done, each), SP_BLOCK, 0, n - done,
              from + done, by ? by + done : NULL, to + done);
}

/* One block has up to blockDim.x * V columns of one row; `pieces` of them make the row. */
template <typename T, int V> SP_KERNEL void swiglu_kernel(int f, unsigned pieces, const T *u, T *y)
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
        up[v] *= sp_ratio<T>(gate[v], 1.0f + exp_minus<T>(gate[v]));
    sp_store<V>(y + row * (size_t)f + c, up);
}

/* du may be u: a thread reads what it will overwrite. */
template <typename T, int V>
SP_KERNEL void swiglu_bwd_kernel(int f, unsigned pieces, const T *u, const T *dy, T *du)
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
        float g = gate[v], e = exp_minus<T>(g), s = sp_ratio<T>(1.0f, 1.0f + e);

        gate[v] = d[v] * up[v] * (s + g * (s * (e * s)));
        up[v] = d[v] * g * s;
    }
    sp_store<V>(du, gate);
    sp_store<V>(du + f, up);
}

template <typename T>
static void swiglu(const struct sp_backend *k, int rows, int f, const void *u, void *y)
{
    size_t width = (size_t)f;
    bool wide = sp_is_wide((const T *)u, width) && sp_is_wide((const T *)y, width);
    struct sp_row_split s = sp_split_row(width / (wide ? (size_t)sp_wide<T>::N : 1));

    sp_launch(k, "swiglu", wide ? swiglu_kernel<T, sp_wide<T>::N> : swiglu_kernel<T, 1>,
              (unsigned)rows * s.pieces, s.threads, 0, f, s.pieces, (const T *)u, (T *)y);
}

template <typename T>
static void swiglu_bwd(const struct sp_backend *k, int rows, int f, const void *u, const void *dy,
                       void *du)
{
    size_t width = (size_t)f;
    bool wide = sp_is_wide((const T *)u, width) && sp_is_wide((const T *)dy, width) &&
                sp_is_wide((const T *)du, width);
    struct sp_row_split s = sp_split_row(width / (wide ? (size_t)sp_wide<T>::N : 1));

    sp_launch(k, "swiglu_bwd", wide ? swiglu_bwd_kernel<T, sp_wide<T>::N> : swiglu_bwd_kernel<T, 1>,
              (unsigned)rows * s.pieces, s.threads, 0, f, s.pieces, (const T *)u, (const T *)dy,
              (T *)du);
}

extern "C" void sp_cuda_gelu_bwd(const struct sp_backend *k, size_t n, const void *u,
                                 const void *dy, void *du)
{
    (k->dtype == SP_BF16 ? gelu_both<bf16> : gelu_both<float>)(k, n, u, dy, du);
}

template <typename T> static void gelu(const struct sp_backend *k, size_t n, const void *u, void *y)
{
    gelu_both<T>(k, n, u, NULL, y);
}

template <typename T> static void mlp_fill(struct sp_backend *backend)
{
    backend->gelu = gelu<T>;
    backend->swiglu = swiglu<T>;
    backend->swiglu_bwd = swiglu_bwd<T>;
}

extern "C" void sp_cuda_mlp_fill(struct sp_backend *backend)
{
    (backend->dtype == SP_BF16 ? mlp_fill<bf16> : mlp_fill<float>)(backend);
}
