/*
 * Sums over whole arrays and the optimizer: one pass over memory, 16 bytes an access; the bytes
 * read and written are the floor. AdamW: 16 bytes of f32 read and 16 written for each weight, and
 * the rounded copy.
 *
 * Sum of squares: blocks of fixed size whose sums are added in order, so it depends on n alone.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/sums.h"

enum {
    SUMSQ_STEPS = 16,
    SUMSQ_EACH = SP_BLOCK * SUMSQ_STEPS * 4 /* floats a block sums: 16384, whatever the access */
};

/* y += x, computed in f32. */
template <typename T, typename U, int V>
SP_KERNEL void add_kernel(size_t accesses, const T *x, U *y)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float a[V], b[V];

    if (at >= accesses)
        return;
    sp_load<V>(x + at * V, a);
    sp_load<V>(y + at * V, b);
    for (int v = 0; v < V; v++)
        b[v] += a[v];
    sp_store<V>(y + at * V, b);
}

template <typename T, typename U>
static void add_all(const struct sp_backend *k, size_t n, const T *x, U *y)
{
    size_t accesses = sp_is_wide(x, 0) && sp_is_wide(y, 0) ? n / sp_wide<T>::N : 0;
    size_t done = accesses * sp_wide<T>::N;

    sp_launch(k, "add", add_kernel<T, U, sp_wide<T>::N>, sp_blocks(accesses, SP_BLOCK), SP_BLOCK, 0,
              accesses, x, y);
    sp_launch(k, "add", add_kernel<T, U, 1>, sp_blocks(n - done, SP_BLOCK), SP_BLOCK, 0, n - done,
              x + done, y + done);
}

static void add_f32(const struct sp_backend *k, size_t n, const float *x, float *y)
{
    add_all(k, n, x, y);
}

template <typename T> static void add(const struct sp_backend *k, size_t n, const void *x, void *y)
{
    add_all(k, n, (const T *)x, (T *)y);
}

enum { PARTS_AT_ONCE = 16 };

template <typename T> struct parts_of {
    const T *at[PARTS_AT_ONCE];
};

template <typename T, int V>
SP_KERNEL void add_parts_kernel(size_t accesses, int parts, struct parts_of<T> x, T *y)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float a[V], sum[V];

    if (at >= accesses)
        return;
    sp_load<V>(y + at * V, sum);
    for (int i = 0; i < parts; i++) {
        sp_load<V>(x.at[i] + at * V, a);
        for (int v = 0; v < V; v++)
            sum[v] += a[v];
    }
    sp_store<V>(y + at * V, sum);
}

/* The sum is rounded once in each launch. */
template <typename T>
static void add_parts(const struct sp_backend *k, size_t n, int parts, const void *const *x,
                      void *sum)
{
    for (int first = 0; first < parts; first += PARTS_AT_ONCE) {
        int now = parts - first < PARTS_AT_ONCE ? parts - first : PARTS_AT_ONCE;
        struct parts_of<T> all = {}, rest = {
        };
        T *y = (T *)sum;
        bool wide = sp_is_wide(y, 0);
        size_t accesses, done;

        for (int i = 0; i < now; i++) {
            all.at[i] = (const T *)x[first + i];
            wide = wide && sp_is_wide(all.at[i], 0);
        }
        accesses = wide ? n / sp_wide<T>::N : 0;
        done = accesses * sp_wide<T>::N;
        for (int i = 0; i < now; i++)
            rest.at[i] = all.at[i] + done;
        sp_launch(k, "add_parts", add_parts_kernel<T, sp_wide<T>::N>, sp_blocks(accesses, SP_BLOCK),
                  SP_BLOCK, 0, accesses, now, all, y);
        sp_launch(k, "add_parts", add_parts_kernel<T, 1>, sp_blocks(n - done, SP_BLOCK), SP_BLOCK,
                  0, n - done, now, rest, y + done);
    }
}

extern "C" void sp_cuda_accumulate(const struct sp_backend *k, size_t n, const void *x, float *sum)
{
    if (k->dtype == SP_BF16)
        add_all(k, n, (const bf16 *)x, sum);
    else
        add_f32(k, n, (const float *)x, sum);
}

/* A thread gets the same elements in the same order, however they are read. */
template <int V> SP_KERNEL void sumsq_kernel(size_t n, const float *g, double *part)
{
    double *shared = sp_shared<double>(), sum = 0;
    size_t first = (size_t)blockIdx.x * SUMSQ_EACH + 4 * threadIdx.x;

#pragma unroll 4
    for (int i = 0; i < SUMSQ_STEPS; i++) {
        size_t at = first + (size_t)i * 4 * SP_BLOCK;
        float a[4] = {0, 0, 0, 0};

        if (V == 4 && at + 4 <= n)
            sp_load<V>(g + at, a);
        else
            for (int v = 0; v < 4; v++)
                a[v] = at + (size_t)v < n ? g[at + (size_t)v] : 0;
        for (int v = 0; v < 4; v++)
            sum += (double)a[v] * (double)a[v];
    }
    for (int with = SP_WARP / 2; with; with /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, with);
    if (threadIdx.x % SP_WARP == 0)
        shared[threadIdx.x / SP_WARP] = sum;
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int w = 1; w < SP_BLOCK / SP_WARP; w++)
        sum += shared[w];
    part[blockIdx.x] = sum;
}

static void sumsq(const struct sp_backend *k, size_t n, const float *g, double *sum)
{
    unsigned parts = sp_blocks(n, SUMSQ_EACH);
    double *part;

    if (!parts)
        return;
    part = (double *)sp_cuda_workspace(k, parts * sizeof *part);
    sp_launch(k, "sumsq", sp_is_wide(g, 0) ? sumsq_kernel<4> : sumsq_kernel<1>, parts, SP_BLOCK,
              SP_BLOCK / SP_WARP * sizeof(double), n, g, part);
    sp_cuda_add_doubles(k, (int)parts, part, sum);
}

/* The factors in the equations of kernels.h that are the same for every weight. */
struct adamw_factors {
    float b1, b2, c1, c2; /* 1 - b1, 1 - b2 */
    float keep, step, root, eps, clip;
};

template <typename T, int V>
SP_KERNEL void adamw_kernel(size_t accesses, struct adamw_factors f, float *w, float *g, float *m,
                            float *v, T *w_low)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float ws[V], gs[V], ms[V], vs[V];

    if (at >= accesses * V)
        return;
    sp_load<V>(w + at, ws);
    sp_load<V>(g + at, gs);
    sp_load<V>(m + at, ms);
    sp_load<V>(v + at, vs);
    for (int i = 0; i < V; i++) {
        float gi = gs[i] * f.clip;

        ms[i] = f.b1 * ms[i] + f.c1 * gi;
        vs[i] = f.b2 * vs[i] + f.c2 * gi * gi;
        ws[i] = ws[i] * f.keep - f.step * ms[i] / (sqrtf(vs[i]) * f.root + f.eps);
        gs[i] = 0;
    }
    sp_store<V>(w + at, ws);
    sp_store<V>(g + at, gs);
    sp_store<V>(m + at, ms);
    sp_store<V>(v + at, vs);
    if (!w_low)
        return;
    if constexpr (sizeof(T) == 2 && V == 4) { /* half an access */
        uint2 low;

        low.x = sp_bf16_pair(ws[0], ws[1]);
        low.y = sp_bf16_pair(ws[2], ws[3]);
        *(uint2 *)(w_low + at) = low;
    } else {
        sp_store<V>(w_low + at, ws);
    }
}

template <typename T>
static void adamw(const struct sp_backend *k, const struct sp_adamw *hp,
                  const struct sp_adamw_arrays *a)
{
    const struct adamw_factors f = {hp->beta1,
                                    hp->beta2,
                                    1.0f - hp->beta1,
                                    1.0f - hp->beta2,
                                    1.0f - hp->lr * hp->weight_decay,
                                    hp->lr / hp->bias1,
                                    1.0f / sqrtf(hp->bias2),
                                    hp->eps,
                                    hp->grad_scale};
    const size_t n = a->n;
    float *w = a->w, *g = a->g, *m = a->m, *v = a->v;
    T *low = (T *)a->low;
    bool wide = sp_is_wide(w, 0) && sp_is_wide(g, 0) && sp_is_wide(m, 0) && sp_is_wide(v, 0) &&
                (uintptr_t)low % (4 * sizeof(T)) == 0;
    size_t accesses = wide ? n / 4 : 0, done = accesses * 4;

    sp_launch(k, "adamw", adamw_kernel<T, 4>, sp_blocks(accesses, SP_BLOCK), SP_BLOCK, 0, accesses,
              f, w, g, m, v, low);
    sp_launch(k, "adamw", adamw_kernel<T, 1>, sp_blocks(n - done, SP_BLOCK), SP_BLOCK, 0, n - done,
              f, w + done, g + done, m + done, v + done, low ? low + done : NULL);
}

template <typename T, int V> SP_KERNEL void round_kernel(size_t accesses, const float *x, T *y)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float a[V];

    if (at >= accesses * V)
        return;
    sp_load<V>(x + at, a);
    sp_store<V>(y + at, a);
}

template <typename T>
static void round_all(const struct sp_backend *k, size_t n, const float *x, void *y)
{
    T *to = (T *)y;
    size_t accesses = sp_is_wide(x, 0) && sp_is_wide(to, 0) ? n / sp_wide<T>::N : 0;
    size_t done = accesses * sp_wide<T>::N;

    sp_launch(k, "round", round_kernel<T, sp_wide<T>::N>, sp_blocks(accesses, SP_BLOCK), SP_BLOCK,
              0, accesses, x, to);
    sp_launch(k, "round", round_kernel<T, 1>, sp_blocks(n - done, SP_BLOCK), SP_BLOCK, 0, n - done,
              x + done, to + done);
}

/* y += x for V elements: y of type T, x of f32. */
template <typename T, int V>
SP_KERNEL void at_random_kernel(size_t accesses, size_t first, uint32_t stream, const float *x,
                                T *y)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float a[V], b[V];

    if (at >= accesses * V)
        return;
    sp_load<V>(x + at, a);
    sp_load<V>(y + at, b);
    for (int i = 0; i < V; i++) {
        b[i] += a[i];
        if (sizeof(T) == 2) /* the result is a bf16, which stores as it is */
            b[i] = __uint_as_float(
                sp_bf16_at_random(__float_as_uint(b[i]),
                                  sp_random_bits(stream, (uint32_t)(first + at + i))) &
                0xffff0000u);
    }
    sp_store<V>(y + at, b);
}

template <typename T, int V> SP_KERNEL void to_f32_kernel(size_t accesses, const T *x, float *y)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float a[V], b[V];

    if (at >= accesses * V)
        return;
    sp_load<V>(x + at, a);
    sp_load<V>(y + at, b);
    for (int i = 0; i < V; i++)
        b[i] += a[i];
    sp_store<V>(y + at, b);
}

template <typename T>
static void add_at_random(const struct sp_backend *k, size_t n, uint32_t stream, const float *x,
                          void *y)
{
    T *to = (T *)y;
    size_t accesses = sp_is_wide(x, 0) && sp_is_wide(to, 0) ? n / sp_wide<T>::N : 0;
    size_t done = accesses * sp_wide<T>::N;

    sp_launch(k, "add_at_random", at_random_kernel<T, sp_wide<T>::N>, sp_blocks(accesses, SP_BLOCK),
              SP_BLOCK, 0, accesses, (size_t)0, stream, x, to);
    sp_launch(k, "add_at_random", at_random_kernel<T, 1>, sp_blocks(n - done, SP_BLOCK), SP_BLOCK,
              0, n - done, done, stream, x + done, to + done);
}

template <typename T>
static void add_to_f32(const struct sp_backend *k, size_t n, const void *x, float *y)
{
    const T *from = (const T *)x;
    size_t accesses = sp_is_wide(from, 0) && sp_is_wide(y, 0) ? n / sp_wide<T>::N : 0;
    size_t done = accesses * sp_wide<T>::N;

    sp_launch(k, "add_to_f32", to_f32_kernel<T, sp_wide<T>::N>, sp_blocks(accesses, SP_BLOCK),
              SP_BLOCK, 0, accesses, from, y);
    sp_launch(k, "add_to_f32", to_f32_kernel<T, 1>, sp_blocks(n - done, SP_BLOCK), SP_BLOCK, 0,
              n - done, from + done, y + done);
}

template <typename T> static void update_fill(struct sp_backend *backend)
{
    backend->add_f32 = add_f32;
    backend->add = add<T>;
    backend->add_parts = add_parts<T>;
    backend->add_at_random = add_at_random<T>;
    backend->add_to_f32 = add_to_f32<T>;
    backend->sumsq = sumsq;
    backend->adamw = adamw<T>;
    backend->round = round_all<T>;
}

extern "C" void sp_cuda_update_fill(struct sp_backend *backend)
{
    (backend->dtype == SP_BF16 ? update_fill<bf16> : update_fill<float>)(backend);
}
