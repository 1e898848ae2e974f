/*
 * LayerNorm and RMSNorm, equations in norm.c. A row belongs to one warp if it has up to 512 elements,
 * else to one block; a thread holds 16 of them, so a row is read once. Floor: x and y, one pass.
 *
 * Backward, the row's gradient: x, dy and dres read, dx written. Rows are dealt to a number of groups
 * that depends on T and h alone; each group's sums for dgain and dbias stay in registers, and are
 * added in the order of the groups. What a thread reads of dy and dres, it reads before it writes the
 * same elements of dx, which may be the same memory.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mlp_cuda.h"

enum {
    HELD = 16,         /* elements of a row that a thread holds */
    FWD_THREADS = 1024,
    BWD_THREADS = 512, /* 128 registers: five times HELD */
    GROUPS = 512,      /* at most, of more than a warp each */
    GROUP_ROWS = 8,    /* at least, or the partial sums cost as much as the rows */
    COLUMN_ROWS = 8    /* rows at a time of a block of norm_columns_kernel */
};

/* A row wider than a span, the elements its threads hold, is read span by span, and once for each
 * use. This is the column of the thread's i-th access to a span. */
template <int V> SP_DEVICE int norm_column(int span, int i)
{
    return ((span * (HELD / V) + i) * (int)blockDim.x + (int)threadIdx.x) * V;
}

/* What lies beyond the row is 0. */
template <int V, typename T>
SP_DEVICE void norm_load(const T *row, int h, int span, float x[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD / V; i++) {
        int c = norm_column<V>(span, i);

        if (c < h)
            sp_load<V>(row + c, x + i * V);
        else
            for (int v = 0; v < V; v++)
                x[i * V + v] = 0;
    }
}

/* `given`: stats are read, not computed; the rest is the same to the bit. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(FWD_THREADS)
    norm_kernel(bool given, bool rms, int rows, int h, float eps, const T *x, const T *gain,
                const T *bias, T *y, float *stats)
{
    float *shared = sp_shared<float>(), held[HELD], mean = 0, square = 0, none = 0, rstd;
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y);
    int spans = (h + (int)blockDim.x * HELD - 1) / ((int)blockDim.x * HELD);

    if (row >= rows) /* where a block has several rows, its warps do not wait for each other */
        return;
    x += (size_t)row * (size_t)h;
    y += (size_t)row * (size_t)h;
    norm_load<V>(x, h, 0, held);
    if (given) {
        mean = stats[2 * (size_t)row];
        rstd = stats[2 * (size_t)row + 1];
    } else {
        if (!rms) {
            for (int s = 0; s < spans; s++) {
                if (spans > 1)
                    norm_load<V>(x, h, s, held);
#pragma unroll
                for (int j = 0; j < HELD; j++)
                    mean += held[j];
            }
            sp_row_sums(&mean, &none, shared);
            mean /= (float)h;
        }
        /* The variance from centred values, as x may have a large mean. */
        for (int s = 0; s < spans; s++) {
            if (spans > 1)
                norm_load<V>(x, h, s, held);
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                float centred = norm_column<V>(s, j / V) < h ? held[j] - mean : 0;

                square = fmaf(centred, centred, square);
            }
        }
        sp_row_sums(&square, &none, shared);
        rstd = 1.0f / sqrtf(square / (float)h + eps);
        if (stats && threadIdx.x == 0) {
            stats[2 * (size_t)row] = mean;
            stats[2 * (size_t)row + 1] = rstd;
        }
    }
    for (int s = 0; s < spans; s++) {
        if (spans > 1)
            norm_load<V>(x, h, s, held);
#pragma unroll
        for (int i = 0; i < HELD / V; i++) {
            int c = norm_column<V>(s, i);
            float g[V], b[V], out[V];

            if (c >= h)
                continue;
            sp_load<V>(gain + c, g);
            if (bias)
                sp_load<V>(bias + c, b);
            for (int v = 0; v < V; v++) {
                float n = (held[i * V + v] - mean) * rstd;

                out[v] = bias ? fmaf(n, g[v], b[v]) : n * g[v];
            }
            sp_store<V>(y + c, out);
        }
    }
}

/* part(groups,2,h) = the groups' sums for dgain, then for dbias; NULL, or rows have one span. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(BWD_THREADS)
    norm_bwd_kernel(bool rms, int rows, int h, const T *x, const float *stats, const T *gain,
                    const T *dy, const T *dres, T *dx, float *part)
{
    float *shared = sp_shared<float>(), xs[HELD], dys[HELD], gains[HELD];
    float sum_gain[HELD] = {0}, sum_bias[HELD] = {0};
    int group = (int)(blockIdx.x * blockDim.y + threadIdx.y);
    int spans = (h + (int)blockDim.x * HELD - 1) / ((int)blockDim.x * HELD);

    norm_load<V>(gain, h, 0, gains);
    for (int row = group; row < rows; row += (int)(gridDim.x * blockDim.y)) {
        size_t at = (size_t)row * (size_t)h;
        float mean = stats[2 * (size_t)row], rstd = stats[2 * (size_t)row + 1], e = 0, en = 0;

        for (int s = 0; s < spans; s++) {
            norm_load<V>(x + at, h, s, xs);
            norm_load<V>(dy + at, h, s, dys);
            if (spans > 1)
                norm_load<V>(gain, h, s, gains);
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                float n = (xs[j] - mean) * rstd, d = dys[j];

                e = fmaf(d, gains[j], e);
                en = fmaf(d * gains[j], n, en);
                sum_gain[j] = fmaf(d, n, sum_gain[j]);
                sum_bias[j] += d;
            }
        }
        sp_row_sums(&e, &en, shared);
        e = rms ? 0 : e / (float)h;
        en /= (float)h;
        for (int s = 0; s < spans; s++) {
            if (spans > 1) {
                norm_load<V>(x + at, h, s, xs);
                norm_load<V>(dy + at, h, s, dys);
                norm_load<V>(gain, h, s, gains);
            }
#pragma unroll
            for (int i = 0; i < HELD / V; i++) {
                int c = norm_column<V>(s, i);
                float out[V];

                if (c >= h)
                    continue;
                for (int v = 0; v < V; v++)
                    out[v] = 0;
                if (dres)
                    sp_load<V>(dres + at + c, out);
                for (int v = 0; v < V; v++) {
                    int j = i * V + v;
                    float n = (xs[j] - mean) * rstd;

                    out[v] += rstd * (dys[j] * gains[j] - e - n * en);
                }
                sp_store<V>(dx + at + c, out);
            }
        }
    }
    if (!part)
        return;
    part += (size_t)group * 2 * (size_t)h;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        int c = norm_column<V>(0, j / V) + j % V;

        if (c < h) {
            part[c] = sum_gain[j];
            part[(size_t)h + c] = sum_bias[j];
        }
    }
}

/* The same sums for rows of several spans, before norm_bwd_kernel overwrites dy: blocks of 32 x
 * COLUMN_ROWS threads, V columns each. Group g has rows g, g + groups... */
template <typename T, int V>
SP_KERNEL void norm_columns_kernel(int rows, int h, const T *x, const float *stats, const T *dy,
                                   float *part)
{
    int c = (int)(blockIdx.x * SP_WARP + threadIdx.x) * V;
    int group = (int)(blockIdx.y * COLUMN_ROWS + threadIdx.y);
    float sum_gain[V] = {0}, sum_bias[V] = {0};

    if (c >= h)
        return;
#pragma unroll 4
    for (int row = group; row < rows; row += (int)gridDim.y * COLUMN_ROWS) {
        float mean = stats[2 * (size_t)row], rstd = stats[2 * (size_t)row + 1], a[V], d[V];

        sp_load<V>(x + (size_t)row * (size_t)h + c, a);
        sp_load<V>(dy + (size_t)row * (size_t)h + c, d);
        for (int v = 0; v < V; v++) {
            sum_gain[v] = fmaf(d[v], (a[v] - mean) * rstd, sum_gain[v]);
            sum_bias[v] += d[v];
        }
    }
    part += (size_t)group * 2 * (size_t)h + c;
    for (int v = 0; v < V; v++) {
        part[v] = sum_gain[v];
        part[(size_t)h + v] = sum_bias[v];
    }
}

/* The threads of a row; those of a warp come by eight rows. */
static dim3 norm_block(int h, int most)
{
    int threads = (h + HELD * SP_WARP - 1) / (HELD * SP_WARP) * SP_WARP;

    return threads <= SP_WARP ? dim3(SP_WARP, SP_BLOCK / SP_WARP)
                              : dim3((unsigned)(threads < most ? threads : most));
}

template <typename T>
static void norm_rows(const struct sp_backend *k, bool given, bool rms, int rows, int h, float eps,
                      const void *x, const void *gain, const void *bias, void *y, float *stats)
{
    dim3 block = norm_block(h, FWD_THREADS);
    size_t width = (size_t)h;
    bool wide = sp_is_wide((const T *)x, width) && sp_is_wide((const T *)y, width) &&
                sp_is_wide((const T *)gain, 0) && sp_is_wide((const T *)bias, 0);

    sp_launch(k, given ? "norm_apply" : "norm",
              wide ? norm_kernel<T, sp_wide<T>::N> : norm_kernel<T, 1>,
              sp_blocks((size_t)rows, block.y), block, 2 * SP_WARP * sizeof(float), given, rms,
              rows, h, eps, (const T *)x, (const T *)gain, (const T *)bias, (T *)y, stats);
}

template <typename T>
static void norm(const struct sp_backend *k, bool rms, int rows, int h, float eps, const void *x,
                 const void *gain, const void *bias, void *y, float *stats)
{
    norm_rows<T>(k, false, rms, rows, h, eps, x, gain, bias, y, stats);
}

template <typename T>
static void norm_apply(const struct sp_backend *k, int rows, int h, const void *x,
                       const float *stats, const void *gain, const void *bias, void *y)
{
    norm_rows<T>(k, true, false, rows, h, 0, x, gain, bias, y, (float *)stats);
}

template <typename T>
static void norm_bwd(const struct sp_backend *k, bool rms, int rows, int h, const void *x,
                     const float *stats, const void *gain, const void *dy, const void *dres,
                     void *dx, float *dgain, float *dbias)
{
    dim3 block = norm_block(h, BWD_THREADS);
    size_t width = (size_t)h, n = sp_wide<T>::N;
    bool wide = sp_is_wide((const T *)x, width) && sp_is_wide((const T *)dy, width) &&
                sp_is_wide((const T *)dres, width) && sp_is_wide((const T *)dx, width) &&
                sp_is_wide((const T *)gain, 0);
    bool spans = h > (int)block.x * HELD, sums = dgain || dbias;
    unsigned blocks = sp_blocks((size_t)rows, GROUP_ROWS * block.y);
    unsigned groups;
    float *part = NULL;

    if (spans)
        blocks = blocks < GROUPS / COLUMN_ROWS ? blocks : GROUPS / COLUMN_ROWS;
    else
        blocks = blocks < GROUPS ? blocks : GROUPS;
    groups = blocks * (spans ? COLUMN_ROWS : block.y);
    if (sums)
        part = (float *)sp_cuda_workspace(k, groups * 2 * width * sizeof *part);
    if (sums && spans)
        sp_launch(k, "norm_bwd columns",
                  wide ? norm_columns_kernel<T, sp_wide<T>::N> : norm_columns_kernel<T, 1>,
                  dim3(sp_blocks(width, SP_WARP * (wide ? n : 1)), blocks),
                  dim3(SP_WARP, COLUMN_ROWS), 0, rows, h, (const T *)x, stats, (const T *)dy, part);
    if (spans)
        blocks = (unsigned)rows;
    sp_launch(k, "norm_bwd", wide ? norm_bwd_kernel<T, sp_wide<T>::N> : norm_bwd_kernel<T, 1>,
              blocks, block, 2 * SP_WARP * sizeof(float), rms, rows, h, (const T *)x, stats,
              (const T *)gain, (const T *)dy, (const T *)dres, (T *)dx, spans ? NULL : part);
    if (dgain)
        sp_cuda_add_partials(k, (int)groups, h, part, 2 * width, dgain);
    if (dbias)
        sp_cuda_add_partials(k, (int)groups, h, part + width, 2 * width, dbias);
}

template <typename T> static void norm_fill(struct sp_backend *backend)
{
    backend->norm = norm<T>;
    backend->norm_apply = norm_apply<T>;
    backend->norm_bwd = norm_bwd<T>;
}

extern "C" void sp_cuda_norm_fill(struct sp_backend *backend)
{
    if (backend->dtype == SP_BF16)
        norm_fill<bf16>(backend);
    else
        norm_fill<float>(backend);
}
