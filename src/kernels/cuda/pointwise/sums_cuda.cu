/*
 * Sums in an order that does not depend on the scheduling: the rows of an array are dealt to parts
 * whose number depends on T alone, and the parts are added in order. Floor: the array, read once.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/sums.h"

enum {
    PART_ROWS = 16,       /* rows of a part, at least */
    PARTS = 256,          /* at most, of wide arrays; of narrow ones as many as fill a device */
    MOST_PARTS = 1024,    /* of any */
    PART_WORDS = 1 << 20, /* of all parts together, while there are more than PARTS */
    PART_LANES = 8,       /* parts of a block of column_sums_kernel */
    ADD_LANES = 16        /* threads that share a column of add_partials_kernel */
};

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
    sp_store<V>(part + (size_t)p * (size_t)n + c, sum);
}

static unsigned most_parts(int n)
{
    int most = PART_WORDS / n;

    return (unsigned)(most < PARTS ? PARTS : most > MOST_PARTS ? MOST_PARTS : most);
}

template <typename T>
static void column_sums(const struct sp_backend *k, int rows, int n, const void *x, int ldx,
                        float *sum)
{
    bool wide = sp_is_wide((const T *)x, (size_t)ldx) && n % sp_wide<T>::N == 0;
    unsigned parts;
    float *part;

    if (!rows || !n)
        return;
    parts = sp_at_most(sp_blocks((size_t)rows, PART_ROWS), most_parts(n));
    part = (float *)sp_cuda_workspace(k, parts * (size_t)n * sizeof *part);
    sp_launch(k, "column_sums",
              wide ? column_sums_kernel<T, sp_wide<T>::N> : column_sums_kernel<T, 1>,
              dim3(sp_blocks((size_t)n, SP_WARP * (wide ? (size_t)sp_wide<T>::N : 1)),
                   sp_blocks(parts, PART_LANES)),
              dim3(SP_WARP, PART_LANES), 0, rows, n, (int)parts, (const T *)x, (size_t)ldx, part);
    sp_cuda_add_partials(k, (int)parts, n, part, (size_t)n, sum);
}

/* Blocks of 32 columns; lane l of a column adds parts l, l + ADD_LANES, ..., then lanes in order.
 * */
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

/* One block: thread t adds parts t, t + SP_BLOCK, ..., then threads by halves. */
SP_KERNEL void add_doubles_kernel(int parts, const double *part, double *sum)
{
    double *shared = sp_shared<double>(), total = 0;

    for (int p = (int)threadIdx.x; p < parts; p += SP_BLOCK)
        total += part[p];
    shared[threadIdx.x] = total;
    for (unsigned half = SP_BLOCK / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *sum += shared[0];
}

extern "C" void sp_cuda_add_doubles(const struct sp_backend *k, int parts, const double *part,
                                    double *sum)
{
    sp_launch(k, "add_doubles", add_doubles_kernel, 1, SP_BLOCK, SP_BLOCK * sizeof(double), parts,
              part, sum);
}
