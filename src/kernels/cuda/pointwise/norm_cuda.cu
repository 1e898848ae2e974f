/*
 * LayerNorm and RMSNorm, equations in norm.c. A row belongs to one warp if it has up to 512
 * elements, else to one block; a thread holds 16 of them, so a row is read once. The least traffic
 * is x and y, one pass.
 *
 * Backward, the row's gradient: x, dy and dres read, dx written. Rows are dealt to a number of
 * groups that depends on T and h alone; each group's sums for dgain and dbias stay in registers,
 * and are added in the order of the groups. A thread reads its elements of dy and dres before it
 * writes the same elements of dx, because dx may be the same memory.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/sums.h"

enum {
    FWD_THREADS = 1024,
    BWD_THREADS =
        512,      /* leaves each 128 registers; a row and its sums take five times HELD of them */
    GROUPS = 512, /* at most so many blocks of GROUP_THREADS, or more of fewer threads */
    GROUP_THREADS = 128,
    GROUP_ROWS = 8, /* of a group, at least, or its sums cost as much as the rows */
    COLUMN_ROWS = 8 /* rows that a block of norm_columns_kernel takes at a time */
};

/* Elements of a row that a thread holds; without wide accesses, addresses take registers too. */
template <int V> constexpr int HELD = V == 1 ? 8 : 16;

/* A span is the elements that the threads of a row hold. A wider row is read span by span, and
 * once for each use. This is the column of the thread's i-th access to a span. */
template <int V> SP_DEVICE int norm_column(int span, int i)
{
    return ((span * (HELD<V> / V) + i) * (int)blockDim.x + (int)threadIdx.x) * V;
}

/* Loads the thread's elements of a span; elements beyond the row are 0. */
template <int V, typename T>
SP_DEVICE void norm_load(const T *row, int h, int span, float x[HELD<V>])
{
#pragma unroll
    for (int i = 0; i < HELD<V> / V; i++) {
        int c = norm_column<V>(span, i);

        if (c < h)
            sp_load<V>(row + c, x + i * V);
        else
            for (int v = 0; v < V; v++)
                x[i * V + v] = 0;
    }
}

/* *sum += the thread's elements of a row; `held` has those of the first span. */
template <int V, typename T>
SP_DEVICE void norm_add(const T *x, int h, int spans, float held[HELD<V>], float *sum)
{
    for (int s = 0; s < spans; s++) {
        if (spans > 1)
            norm_load<V>(x, h, s, held);
#pragma unroll
        for (int j = 0; j < HELD<V>; j++)
            *sum += held[j];
    }
}

/* The same for their squares, centred, because x may have a large mean. */
template <int V, typename T>
SP_DEVICE void norm_add_squares(const T *x, int h, int spans, float mean, float held[HELD<V>],
                                float *sum)
{
    for (int s = 0; s < spans; s++) {
        if (spans > 1)
            norm_load<V>(x, h, s, held);
#pragma unroll
        for (int j = 0; j < HELD<V>; j++) {
            float centred = norm_column<V>(s, j / V) < h ? held[j] - mean : 0;

            *sum = fmaf(centred, centred, *sum);
        }
    }
}

/* `given`: stats are read, not computed; the rest is the same to the bit. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(FWD_THREADS)
    norm_kernel(bool given, bool rms, int rows, int h, float eps, const T *x, const T *gain,
                const T *bias, T *y, float *stats)
{
    float *shared = sp_shared<float>(), held[HELD<V>], mean = 0, square = 0, none = 0, rstd;
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y);
    int spans = (h + (int)blockDim.x * HELD<V> - 1) / ((int)blockDim.x * HELD<V>);

    if (row >= rows) /* if a block has several rows, its warps do not wait for each other */
        return;
    x += (size_t)row * (size_t)h;
    y += (size_t)row * (size_t)h;
    norm_load<V>(x, h, 0, held);
    if (given) {
        mean = stats[2 * (size_t)row];
        rstd = stats[2 * (size_t)row + 1];
    } else {
        if (!rms) {
            norm_add<V>(x, h, spans, held, &mean);
            sp_row_sums(&mean, &none, shared);
            mean /= (float)h;
        }
        norm_add_squares<V>(x, h, spans, mean, held, &square);
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
        for (int i = 0; i < HELD<V> / V; i++) {
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

/*
 * For a row: n = (x - mean) rstd and e = dy gain. Beyond the row e is 0, and n has no meaning.
 */
template <int V, typename T>
SP_DEVICE void norm_terms(const T *x, const T *dy, const T *gain, int h, int span, float mean,
                          float rstd, float n[HELD<V>], float e[HELD<V>])
{
    norm_load<V>(x, h, span, n);
    norm_load<V>(dy, h, span, e);
#pragma unroll
    for (int i = 0; i < HELD<V> / V; i++) {
        int c = norm_column<V>(span, i);
        float g[V];

        for (int v = 0; v < V; v++)
            n[i * V + v] = (n[i * V + v] - mean) * rstd;
        if (c >= h)
            continue;
        sp_load<V>(gain + c, g);
        for (int v = 0; v < V; v++)
            e[i * V + v] *= g[v];
    }
}

/* Writes a group's sums, for rows of one span, to `part`. */
template <int V>
SP_DEVICE void norm_put_sums(float *part, int h, int sums, const float sum_gain[HELD<V>],
                             const float sum_bias[HELD<V>])
{
#pragma unroll
    for (int i = 0; i < HELD<V> / V; i++) {
        int c = norm_column<V>(0, i);

        if (c >= h)
            continue;
        sp_store<V>(part + c, sum_gain + i * V);
        if (sums == 2)
            sp_store<V>(part + h + c, sum_bias + i * V);
    }
}

/* part(groups,sums,h) = the groups' sums for dgain, then for dbias if `sums` is 2. NULL: no sums
 * are wanted, or rows have several spans. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(BWD_THREADS)
    norm_bwd_kernel(bool rms, int rows, int h, const T *x, const float *stats, const T *gain,
                    const T *dy, const T *dres, T *dx, int sums, float *part)
{
    float *shared = sp_shared<float>(), n[HELD<V>], e[HELD<V>], residual[HELD<V>] = {0};
    float sum_gain[HELD<V>] = {0}, sum_bias[HELD<V>] = {0};
    int group = (int)(blockIdx.x * blockDim.y + threadIdx.y);
    int spans = (h + (int)blockDim.x * HELD<V> - 1) / ((int)blockDim.x * HELD<V>);

    for (int row = group; row < rows; row += (int)(gridDim.x * blockDim.y)) {
        size_t at = (size_t)row * (size_t)h;
        float mean = stats[2 * (size_t)row], rstd = stats[2 * (size_t)row + 1];
        float sum_e = 0, sum_en = 0;

        if (dres && spans == 1) /* it arrives while the row is summed up */
            norm_load<V>(dres + at, h, 0, residual);
        for (int s = 0; s < spans; s++) {
            norm_load<V>(dy + at, h, s, e);
            norm_load<V>(x + at, h, s, n);
#pragma unroll
            for (int i = 0; i < HELD<V> / V; i++) {
                int c = norm_column<V>(s, i);
                float g[V];

                if (c >= h)
                    continue;
                sp_load<V>(gain + c, g);
                for (int v = 0; v < V; v++) {
                    int j = i * V + v;

                    n[j] = (n[j] - mean) * rstd;
                    sum_gain[j] = fmaf(e[j], n[j], sum_gain[j]);
                    sum_bias[j] += e[j];
                    e[j] *= g[v];
                    sum_e += e[j];
                    sum_en = fmaf(e[j], n[j], sum_en);
                }
            }
        }
        sp_row_sums(&sum_e, &sum_en, shared);
        sum_e = rms ? 0 : sum_e / (float)h;
        sum_en /= (float)h;
        for (int s = 0; s < spans; s++) {
            if (spans > 1)
                norm_terms<V>(x + at, dy + at, gain, h, s, mean, rstd, n, e);
            if (dres && spans > 1)
                norm_load<V>(dres + at, h, s, residual);
#pragma unroll
            for (int i = 0; i < HELD<V> / V; i++) {
                int c = norm_column<V>(s, i);
                float out[V];

                if (c >= h)
                    continue;
                for (int v = 0; v < V; v++)
                    out[v] =
                        residual[i * V + v] + rstd * (e[i * V + v] - sum_e - n[i * V + v] * sum_en);
                sp_store<V>(dx + at + c, out);
            }
        }
    }
    if (part)
        norm_put_sums<V>(part + (size_t)(group * sums) * (size_t)h, h, sums, sum_gain, sum_bias);
}

/* The same sums for rows of several spans, before norm_bwd_kernel overwrites dy: blocks of 32 x
 * COLUMN_ROWS threads, V columns each. Group g has rows g, g + groups... */
template <typename T, int V>
SP_KERNEL void norm_columns_kernel(int rows, int h, const T *x, const float *stats, const T *dy,
                                   int sums, float *part)
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
    part += (size_t)(group * sums) * (size_t)h + c;
    sp_store<V>(part, sum_gain);
    if (sums == 2)
        sp_store<V>(part + h, sum_bias);
}

/* The threads of a row. If they are one warp, a block takes eight rows. */
static dim3 norm_block(int h, int held, int most)
{
    int threads = (h + held * SP_WARP - 1) / (held * SP_WARP) * SP_WARP;

    return threads <= SP_WARP ? dim3(SP_WARP, SP_BLOCK / SP_WARP)
                              : dim3((unsigned)(threads < most ? threads : most));
}

/* `given`: stats are read, else written */
template <typename T>
static void norm_rows(const struct sp_backend *k, bool given, const struct sp_norm *n,
                      const void *x, void *y, float *stats)
{
    size_t width = (size_t)n->h;
    bool wide = sp_is_wide((const T *)x, width) && sp_is_wide((const T *)y, width) &&
                sp_is_wide((const T *)n->gain, 0) && sp_is_wide((const T *)n->bias, 0);
    dim3 block = norm_block(n->h, wide ? HELD<sp_wide<T>::N> : HELD<1>, FWD_THREADS);

    sp_launch(k, given ? "norm_apply" : "norm",
              wide ? norm_kernel<T, sp_wide<T>::N> : norm_kernel<T, 1>,
              sp_blocks((size_t)n->T, block.y), block, 2 * SP_WARP * sizeof(float), given,
              !given && n->rms, n->T, n->h, given ? 0 : n->eps, (const T *)x, (const T *)n->gain,
              (const T *)n->bias, (T *)y, stats);
}

template <typename T>
static void norm(const struct sp_backend *k, const struct sp_norm *n, const void *x, void *y,
                 float *stats)
{
    norm_rows<T>(k, false, n, x, y, stats);
}

template <typename T>
static void norm_apply(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                       const float *stats, void *y)
{
    norm_rows<T>(k, true, n, x, y, (float *)stats);
}

template <typename T>
static void norm_bwd(const struct sp_backend *k, const struct sp_norm *norm, const void *x,
                     const float *stats, const struct sp_norm_bwd *g)
{
    const int rows = norm->T, h = norm->h;
    const T *gain = (const T *)norm->gain, *dy = (const T *)g->dy, *dres = (const T *)g->dres;
    T *dx = (T *)g->dx;
    float *dgain = g->dgain, *dbias = g->dbias;
    size_t width = (size_t)h, n = sp_wide<T>::N;
    bool wide = sp_is_wide((const T *)x, width) && sp_is_wide(dy, width) &&
                sp_is_wide(dres, width) && sp_is_wide((const T *)dx, width) && sp_is_wide(gain, 0);
    int held = wide ? HELD<sp_wide<T>::N> : HELD<1>, sums = dbias ? 2 : 1;
    dim3 block = norm_block(h, held, BWD_THREADS);
    bool spans = h > (int)block.x * held;
    unsigned side = spans ? (unsigned)COLUMN_ROWS : block.y; /* groups of a block */
    unsigned more = !spans && block.x * block.y < GROUP_THREADS ? GROUP_THREADS / block.x : 1;
    unsigned blocks = sp_at_most(sp_blocks((size_t)rows, GROUP_ROWS * side),
                                 spans ? GROUPS / COLUMN_ROWS : GROUPS * more);
    unsigned groups = blocks * side;
    float *part = NULL;

    if (dgain || dbias)
        part = (float *)sp_cuda_workspace(k, groups * (size_t)sums * width * sizeof *part);
    if (part && spans)
        sp_launch(k, "norm_bwd columns",
                  wide ? norm_columns_kernel<T, sp_wide<T>::N> : norm_columns_kernel<T, 1>,
                  dim3(sp_blocks(width, SP_WARP * (wide ? n : 1)), blocks),
                  dim3(SP_WARP, COLUMN_ROWS), 0, rows, h, (const T *)x, stats, dy, sums, part);
    if (spans)
        blocks = (unsigned)rows;
    sp_launch(k, "norm_bwd", wide ? norm_bwd_kernel<T, sp_wide<T>::N> : norm_bwd_kernel<T, 1>,
              blocks, block, 2 * SP_WARP * sizeof(float), norm->rms, rows, h, (const T *)x, stats,
              gain, dy, dres, dx, sums, spans ? NULL : part);
    if (dgain && dbias == dgain + h) { /* as in a block of parameters */
        sp_cuda_add_partials(k, (int)groups, 2 * h, part, 2 * width, dgain);
        return;
    }
    if (dgain)
        sp_cuda_add_partials(k, (int)groups, h, part, (size_t)sums * width, dgain);
    if (dbias)
        sp_cuda_add_partials(k, (int)groups, h, part + width, (size_t)sums * width, dbias);
}

template <typename T> static void norm_fill(struct sp_backend *backend)
{
    backend->norm = norm<T>;
    backend->norm_apply = norm_apply<T>;
    backend->norm_bwd = norm_bwd<T>;
}

extern "C" void sp_cuda_norm_fill(struct sp_backend *backend)
{
    (backend->dtype == SP_BF16 ? norm_fill<bf16> : norm_fill<float>)(backend);
}
