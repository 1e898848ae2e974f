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
SP_KERNEL void add_kernel(size_t first, size_t accesses, const T *x, U *y)
{
    size_t at;
    float a[V], b[V];

    if (!sp_own_access<V>(first, accesses, &at))
        return;
    sp_load<V>(x + at, a);
    sp_load<V>(y + at, b);
    for (int v = 0; v < V; v++)
        b[v] += a[v];
    sp_store<V>(y + at, b);
}

template <typename T, typename U>
static void add_all(const struct sp_backend *k, const char *name, size_t n, const T *x, U *y)
{
    sp_launch_over<sp_wide<T>::N>(k, name, n, sp_is_wide(x, 0) && sp_is_wide(y, 0), SP_BLOCK,
                                  add_kernel<T, U, sp_wide<T>::N>, add_kernel<T, U, 1>, x, y);
}

static void add_f32(const struct sp_backend *k, size_t n, const float *x, float *y)
{
    add_all(k, "add", n, x, y);
}

template <typename T> static void add(const struct sp_backend *k, size_t n, const void *x, void *y)
{
    add_all(k, "add", n, (const T *)x, (T *)y);
}

template <typename T>
static void add_to_f32(const struct sp_backend *k, size_t n, const void *x, float *y)
{
    add_all(k, "add_to_f32", n, (const T *)x, y);
}

enum { PARTS_AT_ONCE = 16 };

template <typename T> struct parts_of {
    const T *at[PARTS_AT_ONCE];
};

template <typename T, int V>
SP_KERNEL void add_parts_kernel(size_t first, size_t accesses, int parts, struct parts_of<T> x,
                                T *y)
{
    size_t at;
    float a[V], sum[V];

    if (!sp_own_access<V>(first, accesses, &at))
        return;
    sp_load<V>(y + at, sum);
    for (int i = 0; i < parts; i++) {
        sp_load<V>(x.at[i] + at, a);
        for (int v = 0; v < V; v++)
            sum[v] += a[v];
    }
    sp_store<V>(y + at, sum);
}

/* The sum is rounded once in each launch. */
template <typename T>
static void add_parts(const struct sp_backend *k, size_t n, int parts, const void *const *x,
                      void *sum)
{
    for (int first = 0; first < parts; first += PARTS_AT_ONCE) {
        int now = parts - first < PARTS_AT_ONCE ? parts - first : PARTS_AT_ONCE;
        struct parts_of<T> some = {
        };
        T *y = (T *)sum;
        bool wide = sp_is_wide(y, 0);

        for (int i = 0; i < now; i++) {
            some.at[i] = (const T *)x[first + i];
            wide = wide && sp_is_wide(some.at[i], 0);
        }
        sp_launch_over<sp_wide<T>::N>(k, "add_parts", n, wide, SP_BLOCK,
                                      add_parts_kernel<T, sp_wide<T>::N>, add_parts_kernel<T, 1>,
                                      now, some, y);
    }
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
    bool keeps_g;
};

template <typename T, int V>
SP_KERNEL void adamw_kernel(size_t first, size_t accesses, struct adamw_factors f, float *w,
                            float *g, float *m, float *v, T *w_low)
{
    size_t at;
    float ws[V], gs[V], ms[V], vs[V];

    if (!sp_own_access<V>(first, accesses, &at))
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
        gs[i] = f.keeps_g ? gs[i] : 0;
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
                                    hp->grad_scale,
                                    a->keeps_g};
    T *low = (T *)a->low;
    bool wide = sp_is_wide(a->w, 0) && sp_is_wide(a->g, 0) && sp_is_wide(a->m, 0) &&
                sp_is_wide(a->v, 0) && (uintptr_t)low % (4 * sizeof(T)) == 0;

    sp_launch_over<4>(k, "adamw", a->n, wide, SP_BLOCK, adamw_kernel<T, 4>, adamw_kernel<T, 1>, f,
                      a->w, a->g, a->m, a->v, low);
}

template <typename T, int V>
SP_KERNEL void round_kernel(size_t first, size_t accesses, const float *x, T *y)
{
    size_t at;
    float a[V];

    if (!sp_own_access<V>(first, accesses, &at))
        return;
    sp_load<V>(x + at, a);
    sp_store<V>(y + at, a);
}

template <typename T>
static void round_all(const struct sp_backend *k, size_t n, const float *x, void *y)
{
    T *to = (T *)y;

    sp_launch_over<sp_wide<T>::N>(k, "round", n, sp_is_wide(x, 0) && sp_is_wide(to, 0), SP_BLOCK,
                                  round_kernel<T, sp_wide<T>::N>, round_kernel<T, 1>, x, to);
}

/* y += x for V elements: y of type T, x of f32. */
template <typename T, int V>
SP_KERNEL void at_random_kernel(size_t first, size_t accesses, uint32_t stream, const float *x,
                                T *y)
{
    size_t at;
    float a[V], b[V];

    if (!sp_own_access<V>(first, accesses, &at))
        return;
    sp_load<V>(x + at, a);
    sp_load<V>(y + at, b);
    for (int i = 0; i < V; i++) {
        b[i] += a[i];
        if (sizeof(T) == 2) /* the result is a bf16, which stores as it is */
            b[i] = __uint_as_float(sp_bf16_at_random(__float_as_uint(b[i]),
                                                     sp_random_bits(stream, (uint32_t)(at + i))) &
                                   0xffff0000u);
    }
    sp_store<V>(y + at, b);
}

template <typename T>
static void add_at_random(const struct sp_backend *k, size_t n, uint32_t stream, const float *x,
                          void *y)
{
    T *to = (T *)y;

    sp_launch_over<sp_wide<T>::N>(k, "add_at_random", n, sp_is_wide(x, 0) && sp_is_wide(to, 0),
                                  SP_BLOCK, at_random_kernel<T, sp_wide<T>::N>,
                                  at_random_kernel<T, 1>, stream, x, to);
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
