/*
 * Loss, equations in cross_entropy.c, over a part of the vocabulary too.
 *
 * A block has a row of logits; it reads them once for the maximum and the sum of e^z, and once for
 * the gradient, which it writes in their place. The least traffic for a row, between its products,
 * is V elements read and written.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/sums.h"
#include <float.h>

enum { LOSS_THREADS = 512 };

/* The sum of e^(z - most) over a row z(V), and *most, its largest element, for all threads of
 * the block; it includes a barrier. Both come from one pass: the sum so far is scaled when the
 * maximum grows. */
template <typename T, int V>
SP_DEVICE float row_exponentials(int vocabulary, const T *z, float *most)
{
    float *shared = sp_shared<float>(), *maxima = shared + 2 * SP_WARP;
    float max = -FLT_MAX, sum = 0, none = 0;

#pragma unroll 2
    for (int c = (int)threadIdx.x * V; c < vocabulary; c += LOSS_THREADS * V) {
        float a[V], now = max;

        sp_load<V>(z + c, a);
        for (int v = 0; v < V; v++) {
            a[v] = c + v < vocabulary ? a[v] : -INFINITY;
            now = fmaxf(now, a[v]);
        }
        sum *= sp_exp<T>(max - now);
        for (int v = 0; v < V; v++)
            sum += sp_exp<T>(a[v] - now);
        max = now;
    }
    *most = sp_lanes_max(max, SP_WARP);
    if (threadIdx.x % SP_WARP == 0)
        maxima[threadIdx.x / SP_WARP] = *most;
    __syncthreads();
    for (int w = 0; w < LOSS_THREADS / SP_WARP; w++)
        *most = fmaxf(*most, maxima[w]);
    sum *= sp_exp<T>(max - *most);
    sp_row_sums(&sum, &none, shared);
    return sum;
}

/* For a row z(V) of logits: z := factor e^(z - at) - scale onehot; elements between V and the
 * end of the row become 0. */
template <typename T, int V>
SP_DEVICE void row_gradient(int vocabulary, int target, float at, float factor, float scale, T *z)
{
    for (int c = (int)threadIdx.x * V; c < vocabulary; c += LOSS_THREADS * V) {
        float a[V];

        sp_load<V>(z + c, a);
        for (int v = 0; v < V; v++) {
            a[v] = c + v < vocabulary ? sp_exp<T>(a[v] - at) * factor : 0;
            a[v] -= c + v == target ? scale : 0;
        }
        sp_store<V>(z + c, a);
    }
}

/* For a row z(V) of logits: loss = log(sum e^z) - z[target], and z := scale (softmax(z) -
 * onehot) if `gradient`. Elements between V and the end of the row do not count as logits, and
 * become 0. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(LOSS_THREADS)
    cross_entropy_kernel(int vocabulary, size_t ld, const int32_t *targets, bool gradient,
                         float scale, T *z, double *loss)
{
    float most, sum, at_target;
    int target = targets[blockIdx.x];
    bool counts = target != SP_NO_TARGET;

    z += blockIdx.x * ld;
    at_target = counts ? sp_value(z[target]) : 0; /* read by all threads before the barrier */
    sum = row_exponentials<T, V>(vocabulary, z, &most);
    if (threadIdx.x == 0)
        loss[blockIdx.x] = counts ? log((double)sum) + (double)most - (double)at_target : 0;
    if (gradient)
        row_gradient<T, V>(vocabulary, target, most, counts ? scale / sum : 0, scale, z);
}

/*
 * The number of words in the first of two products: whole accesses of 16 bytes. cuBLASLt looks at
 * sizes, whatever the leading dimensions are, and has fast bf16 kernels only for such sizes: 50257
 * words at once take six times as long on an H200. The few remaining words are a product of their
 * own.
 */
template <typename T> static int most_words(int vocabulary)
{
    const int word = sp_wide<T>::N;

    return sizeof(T) < sizeof(float) && vocabulary > word ? vocabulary / word * word : vocabulary;
}

/* A chunk of n rows, from row `first` on. */
template <typename T> struct chunk {
    int n, h, vocabulary, ld;
    const T *x, *w;
    T *z; /* logits, or their gradients */
    const int32_t *targets;
    bool wide;
};

template <typename T> static struct chunk<T> chunk_at(const struct sp_logits *l, int first) {
    struct chunk<T> c;

    c.n = l->T - first < l->rows ? l->T - first : l->rows;
    c.h = l->h;
    c.vocabulary = l->V;
    c.ld = sp_logits_ld(l->V);
    c.x = (const T *)l->x + (size_t)first * (size_t)l->h;
    c.w = (const T *)l->w;
    c.z = (T *)l->scratch;
    c.targets = l->targets + first;
    c.wide = sp_is_wide(c.z, (size_t)c.ld);
    return c;
}

/* C = or += A B, or its operands transposed */
static struct sp_gemm
product_of(bool trans_a, bool trans_b, int m, int n, int k, bool accumulate)
{
    struct sp_gemm g = {};

    g.trans_a = trans_a;
    g.trans_b = trans_b;
    g.m = m;
    g.n = n;
    g.k = k;
    g.alpha = 1;
    g.beta = accumulate ? 1 : 0;
    return g;
}

/* z(n,V) = x w^T */
template <typename T> static void logits(const struct sp_backend *k, const struct chunk<T> &c)
{
    int most = most_words<T>(c.vocabulary);
    struct sp_gemm g = product_of(false, true, c.n, most, c.h, false);

    g.lda = g.ldb = c.h;
    g.ldc = c.ld;
    sp_cuda_gemm(k, &g, c.x, c.w, c.z, false);
    g.n = c.vocabulary - most;
    sp_cuda_gemm(k, &g, c.x, c.w + (size_t)most * (size_t)c.h, c.z + most, false);
}

/* With dz(n,V) in z: dx = dz w, dw += dz^T x, if not NULL. dx first gets the share of the few
 * remaining words, rounded; then the others' is added. */
template <typename T>
static void product_gradients(const struct sp_backend *k, const struct chunk<T> &c, T *dx,
                              float *dw)
{
    int most = most_words<T>(c.vocabulary), few = c.vocabulary - most;
    size_t skipped = (size_t)most * (size_t)c.h;
    struct sp_gemm to_dx = product_of(false, false, c.n, c.h, few, false);
    struct sp_gemm to_dw = product_of(true, false, most, c.h, c.n, true);

    to_dx.lda = to_dw.lda = c.ld;
    to_dx.ldb = to_dw.ldb = to_dx.ldc = to_dw.ldc = c.h;
    if (dx && few)
        sp_cuda_gemm(k, &to_dx, c.z + most, c.w + skipped, dx, false);
    to_dx.k = most;
    to_dx.beta = few ? 1 : 0;
    if (dx)
        sp_cuda_gemm(k, &to_dx, c.z, c.w, dx, false);
    if (!dw)
        return;
    sp_cuda_gemm(k, &to_dw, c.z, c.x, dw, true);
    to_dw.m = few;
    sp_cuda_gemm(k, &to_dw, c.z + most, c.x, dw + skipped, true);
}

template <typename T>
static void cross_entropy(const struct sp_backend *k, const struct sp_logits *l, double *loss,
                          void *dx, float *dw)
{
    for (int t = 0; t < l->T; t += l->rows) {
        struct chunk<T> c = chunk_at<T>(l, t);
        double *part;

        logits(k, c);
        /* The products may use the workspace too, so a chunk's losses are added before the next. */
        part = (double *)sp_cuda_workspace(k, (size_t)c.n * sizeof *part);
        sp_launch(k, "cross_entropy",
                  c.wide ? cross_entropy_kernel<T, sp_wide<T>::N> : cross_entropy_kernel<T, 1>,
                  (unsigned)c.n, LOSS_THREADS, 3 * SP_WARP * sizeof(float), c.vocabulary,
                  (size_t)c.ld, c.targets, dx || dw, l->scale, c.z, part);
        sp_cuda_add_doubles(k, c.n, part, loss);
        product_gradients(k, c, dx ? (T *)dx + (size_t)t * (size_t)c.h : NULL, dw);
    }
}

/* ---- loss over a part of the vocabulary (cpu/gemm/cross_entropy.c) ------------------------------- */

/* For a row z(V) of logits: log(sum e^z), and z[target] if this part has it. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(LOSS_THREADS)
    logit_stats_kernel(int vocabulary, size_t ld, const int32_t *targets, const T *z, float *stats)
{
    float most, sum;
    int target = targets[blockIdx.x];

    z += blockIdx.x * ld;
    sum = row_exponentials<T, V>(vocabulary, z, &most);
    if (threadIdx.x == 0) {
        stats[2 * blockIdx.x] = (float)(log((double)sum) + (double)most);
        stats[2 * blockIdx.x + 1] = target >= 0              ? sp_value(z[target])
                                    : target == SP_NO_TARGET ? NAN
                                                             : 0;
    }
}

/* z := scale (e^(z - lse) - onehot); elements between V and the end of the row become 0. */
template <typename T, int V>
SP_KERNEL void __launch_bounds__(LOSS_THREADS)
    logits_gradient_kernel(int vocabulary, size_t ld, const int32_t *targets, const float *lse,
                           float scale, T *z)
{
    int target = targets[blockIdx.x];

    row_gradient<T, V>(vocabulary, target, lse[blockIdx.x], target == SP_NO_TARGET ? 0 : scale,
                       scale, z + blockIdx.x * ld);
}

/* log(e^a + e^b) */
SP_DEVICE float log_add(float a, float b)
{
    float max = fmaxf(a, b);

    return max + (float)log(exp((double)(a - max)) + exp((double)(b - max)));
}

/* Adds the next part to a row's sum, kept as its logarithm; with the last part (`ends`) it makes
 * the row's loss. */
SP_KERNEL void merge_logits_kernel(int rows, bool begins, bool ends, const float *stats, float *lse,
                                   double *targets, double *loss)
{
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (row >= rows)
        return;
    float sum = log_add(stats[2 * row], begins ? -INFINITY : lse[row]);
    double target = (begins ? 0 : targets[row]) + (double)stats[2 * row + 1];

    lse[row] = sum;
    targets[row] = target;
    if (ends)
        loss[row] = isnan(target) && !isnan(sum) ? 0 : (double)sum - target;
}

template <typename T>
static void logit_stats(const struct sp_backend *k, const struct sp_logits *l, float *stats)
{
    for (int t = 0; t < l->T; t += l->rows) {
        struct chunk<T> c = chunk_at<T>(l, t);

        logits(k, c);
        sp_launch(k, "logit_stats",
                  c.wide ? logit_stats_kernel<T, sp_wide<T>::N> : logit_stats_kernel<T, 1>,
                  (unsigned)c.n, LOSS_THREADS, 3 * SP_WARP * sizeof(float), c.vocabulary,
                  (size_t)c.ld, c.targets, (const T *)c.z, stats + 2 * (size_t)t);
    }
}

static void merge_logits(const struct sp_backend *k, int rows, int n, const float *const *stats,
                         float *lse, double *loss)
{
    enum { THREADS = 256 };
    double *targets = (double *)sp_cuda_workspace(k, 2 * (size_t)rows * sizeof *targets);
    double *part = targets + rows;

    for (int i = 0; i < n; i++)
        sp_launch(k, "merge_logits", merge_logits_kernel, sp_blocks((size_t)rows, THREADS), THREADS,
                  0, rows, i == 0, i == n - 1, stats[i], lse, targets, part);
    if (loss)
        sp_cuda_add_doubles(k, rows, part, loss);
}

/* A row's statistics of n parts at once; a stage has few devices, so n is small. */
struct parts_of_stats {
    enum { MOST = 32 };
    const float *at[MOST];
};

SP_KERNEL void merge_stats_kernel(int rows, int n, bool begins, struct parts_of_stats stats,
                                  float *merged)
{
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float lse, target;

    if (row >= rows)
        return;
    lse = begins ? -INFINITY : merged[2 * row];
    target = begins ? 0 : merged[2 * row + 1];
    for (int i = 0; i < n; i++) {
        lse = log_add(lse, stats.at[i][2 * row]);
        target += stats.at[i][2 * row + 1];
    }
    merged[2 * row] = lse;
    merged[2 * row + 1] = target;
}

static void merge_stats(const struct sp_backend *k, int rows, int n, const float *const *stats,
                        float *merged)
{
    enum { THREADS = 256 };

    for (int first = 0; first < n; first += parts_of_stats::MOST) {
        int more = n - first < parts_of_stats::MOST ? n - first : parts_of_stats::MOST;
        struct parts_of_stats parts;

        for (int i = 0; i < parts_of_stats::MOST; i++)
            parts.at[i] = stats[first + (i < more ? i : 0)];
        sp_launch(k, "merge_stats", merge_stats_kernel, sp_blocks((size_t)rows, THREADS), THREADS,
                  0, rows, more, first == 0, parts, merged);
    }
}

template <typename T>
static void logits_bwd(const struct sp_backend *k, const struct sp_logits *l, const float *lse,
                       bool kept, void *dx, float *dw)
{
    for (int t = 0; t < l->T; t += l->rows) {
        struct chunk<T> c = chunk_at<T>(l, t);

        if (!kept)
            logits(k, c);
        sp_launch(k, "logits_gradient",
                  c.wide ? logits_gradient_kernel<T, sp_wide<T>::N> : logits_gradient_kernel<T, 1>,
                  (unsigned)c.n, LOSS_THREADS, 0, c.vocabulary, (size_t)c.ld, c.targets, lse + t,
                  l->scale, c.z);
        product_gradients(k, c, (T *)dx + (size_t)t * (size_t)c.h, dw);
    }
}

template <typename T> static void loss_fill(struct sp_backend *backend)
{
    backend->cross_entropy = cross_entropy<T>;
    backend->logit_stats = logit_stats<T>;
    backend->merge_logits = merge_logits;
    backend->merge_stats = merge_stats;
    backend->logits_bwd = logits_bwd<T>;
}

extern "C" void sp_cuda_loss_fill(struct sp_backend *backend)
{
    (backend->dtype == SP_BF16 ? loss_fill<bf16> : loss_fill<float>)(backend);
}
