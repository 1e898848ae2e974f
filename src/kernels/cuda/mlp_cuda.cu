/*
 * GELU and SwiGLU, equations in gelu.c and swiglu.c, and sums over rows.
 *
 * Elementwise: one pass over memory, 16 bytes an access; the floor is what is read and written. Column
 * sums: the rows are dealt to parts whose number depends on T alone, and the parts are added in order.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mlp_cuda.h"

#define TWICE_ROOT 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f

enum {
    ELEMENTWISE_STEPS = 2, /* accesses in flight per array and thread */
    PART_ROWS = 32,        /* rows of a part, at least */
    PARTS = 256,           /* at most */
    PART_LANES = 8,        /* parts of a block of column_sums_kernel */
    ADD_LANES = 16         /* threads that share a column of add_partials_kernel */
};

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
template <typename T, int V>
SP_KERNEL void swiglu_kernel(int f, unsigned pieces, const T *u, T *y)
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

/* Threads of a block, and blocks of a row, for `accesses` a row. */
static unsigned swiglu_block(size_t accesses, unsigned *pieces)
{
    unsigned threads = sp_blocks(accesses, SP_WARP) * SP_WARP;

    threads = threads < SP_BLOCK ? threads : SP_BLOCK;
    *pieces = sp_blocks(accesses, threads);
    return threads;
}

template <typename T>
static void swiglu(const struct sp_backend *k, int T_rows, int f, const void *u, void *y)
{
    size_t width = (size_t)f;
    bool wide = sp_is_wide((const T *)u, width) && sp_is_wide((const T *)y, width);
    unsigned pieces, threads = swiglu_block(width / (wide ? sp_wide<T>::N : 1), &pieces);

    sp_launch(k, "swiglu", wide ? swiglu_kernel<T, sp_wide<T>::N> : swiglu_kernel<T, 1>,
              (unsigned)T_rows * pieces, threads, 0, f, pieces, (const T *)u, (T *)y);
}

template <typename T>
static void swiglu_bwd(const struct sp_backend *k, int T_rows, int f, const void *u, const void *dy,
                       void *du)
{
    size_t width = (size_t)f;
    bool wide = sp_is_wide((const T *)u, width) && sp_is_wide((const T *)dy, width) &&
                sp_is_wide((const T *)du, width);
    unsigned pieces, threads = swiglu_block(width / (wide ? sp_wide<T>::N : 1), &pieces);

    sp_launch(k, "swiglu_bwd", wide ? swiglu_bwd_kernel<T, sp_wide<T>::N> : swiglu_bwd_kernel<T, 1>,
              (unsigned)T_rows * pieces, threads, 0, f, pieces, (const T *)u, (const T *)dy,
              (T *)du);
}

/* part(parts,n): part p sums rows p, p + parts, ... */
template <typename T, int V>
SP_KERNEL void column_sums_kernel(int rows, int n, int parts, const T *x, size_t ldx, float *part)
{
    int c = (int)(blockIdx.x * SP_WARP + threadIdx.x) * V;
    int p = (int)(blockIdx.y * PART_LANES + threadIdx.y);
    float sum[V] = {0};

    if (c >= n || p >= parts)
        return;
#pragma unroll 4
    for (int row = p; row < rows; row += parts) {
        float a[V];

        sp_load<V>(x + (size_t)row * ldx + c, a);
        for (int v = 0; v < V; v++)
            sum[v] += a[v];
    }
    for (int v = 0; v < V; v++)
        part[(size_t)p * (size_t)n + c + v] = sum[v];
}

template <typename T>
static void column_sums(const struct sp_backend *k, int rows, int n, const void *x, int ldx,
                        float *sum)
{
    bool wide = sp_is_wide((const T *)x, (size_t)ldx) && n % sp_wide<T>::N == 0;
    unsigned parts = sp_blocks((size_t)rows, PART_ROWS);
    float *part;

    parts = parts < PARTS ? parts : PARTS;
    if (!parts || !n)
        return;
    part = (float *)sp_cuda_workspace(k, parts * (size_t)n * sizeof *part);
    sp_launch(k, "column_sums",
              wide ? column_sums_kernel<T, sp_wide<T>::N> : column_sums_kernel<T, 1>,
              dim3(sp_blocks((size_t)n, SP_WARP * (wide ? sp_wide<T>::N : 1)),
                   sp_blocks(parts, PART_LANES)),
              dim3(SP_WARP, PART_LANES), 0, rows, n, (int)parts, (const T *)x, (size_t)ldx, part);
    sp_cuda_add_partials(k, (int)parts, n, part, (size_t)n, sum);
}

/* Blocks of 32 columns; lane l of a column adds parts l, l + ADD_LANES, ..., then lanes in order. */
SP_KERNEL void add_partials_kernel(int parts, int n, const float *part, size_t stride, float *sum)
{
    float *shared = sp_shared<float>(), total = 0;
    int c = (int)(blockIdx.x * SP_WARP + threadIdx.x), lane = (int)threadIdx.y;

    if (c < n) {
#pragma unroll 8
        for (int p = lane; p < parts; p += ADD_LANES)
            total += part[(size_t)p * stride + c];
    }
    shared[lane * SP_WARP + (int)threadIdx.x] = total;
    __syncthreads();
    if (lane || c >= n)
        return;
    for (int l = 1; l < ADD_LANES; l++)
        total += shared[l * SP_WARP + (int)threadIdx.x];
    sum[c] += total;
}

extern "C" void sp_cuda_add_partials(const struct sp_backend *k, int parts, int n,
                                     const float *part, size_t stride, float *sum)
{
    sp_launch(k, "add_partials", add_partials_kernel, sp_blocks((size_t)n, SP_WARP),
              dim3(SP_WARP, ADD_LANES), ADD_LANES * SP_WARP * sizeof(float), parts, n, part, stride,
              sum);
}

extern "C" void sp_cuda_column_sums(const struct sp_backend *k, int T, int n, const void *x,
                                    int ldx, float *sum)
{
    (k->dtype == SP_BF16 ? column_sums<bf16> : column_sums<float>)(k, T, n, x, ldx, sum);
}

extern "C" void sp_cuda_gelu_bwd(const struct sp_backend *k, size_t n, const void *u,
                                 const void *dy, void *du)
{
    (k->dtype == SP_BF16 ? gelu_both<bf16> : gelu_both<float>)(k, n, u, dy, du);
}

template <typename T>
static void gelu(const struct sp_backend *k, size_t n, const void *u, void *y)
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
    if (backend->dtype == SP_BF16)
        mlp_fill<bf16>(backend);
    else
        mlp_fill<float>(backend);
}
