/*
 * Tiles in shared memory and their products, in f32 on the ordinary arithmetic units: exact enough
 * for comparison with the CPU, and for heads that the tensor cores' tiles do not fit.
 */
#ifndef SP_CUDA_ATTENTION_TILE_H
#define SP_CUDA_ATTENTION_TILE_H

#include "kernels/cuda/attention/attention.h"

enum { ATTENTION_THREADS = 256 /* 16 x 16: thread (ty, tx) */ };

/* A tile is (rows, D), D the head size rounded up to what there is a kernel for; one of P or dS
 * (queries, N). Four floats more a row let the 16-byte accesses of eight threads to eight rows meet
 * all banks. */

template <int D> constexpr int TILE_LD = D + 4;
template <int N> constexpr int SCORE_LD = N + 4;

/* Columns from d on, and rows from `n` on, are 0. */
template <int V, int D, typename T>
SP_DEVICE void tile_put(float *tile, int row, int c, int d, const T *from)
{
    float x[V] = {0};

    if (from && c < d)
        sp_load<V>(from + c, x);
    sp_store<V>(tile + row * TILE_LD<D> + c, x);
}

/* `n` rows of queries from `row` on. */
template <int V, int D, int ROWS, typename T>
SP_DEVICE void tile_queries_by(float *tile, const struct attention_shape &a, int b, int head,
                               int row, int n, const T *q)
{
    for (int i = (int)threadIdx.x; i < ROWS * (D / V); i += ATTENTION_THREADS) {
        int r = i / (D / V);

        tile_put<V, D>(tile, r, i % (D / V) * V, a.d,
                       r < n ? q + attention_query(a, b, row + r, head) : NULL);
    }
}

template <int D, int ROWS, typename T>
SP_DEVICE void tile_queries(float *tile, const struct attention_shape &a, int b, int head, int row,
                            int n, const T *q)
{
    if (a.wide)
        tile_queries_by<sp_wide<T>::N, D, ROWS>(tile, a, b, head, row, n, q);
    else
        tile_queries_by<1, D, ROWS>(tile, a, b, head, row, n, q);
}

/* Keys from `pos` on, those before `end`; values if `offset` is kv_heads * d. */
template <int V, int D, int ROWS, typename T, int N>
SP_DEVICE void tile_keys_by(float *tile, const struct attention_slices<N> &s,
                            const struct attention_shape &a, int b, int kv_head, int pos, int end,
                            int slice, int offset)
{
    for (int i = (int)threadIdx.x; i < ROWS * (D / V); i += ATTENTION_THREADS) {
        int r = i / (D / V);
        const T *key = NULL;

        if (pos + r < end)
            key = attention_key<const T>(s, a, b, kv_head, pos + r, slice) + offset;
        tile_put<V, D>(tile, r, i % (D / V) * V, a.d, key);
    }
}

template <typename T, int D, int ROWS, int N>
SP_DEVICE void tile_keys(float *tile, const struct attention_slices<N> &s,
                         const struct attention_shape &a, int b, int kv_head, int pos, int end,
                         int slice, int offset)
{
    if (a.wide)
        tile_keys_by<sp_wide<T>::N, D, ROWS, T>(tile, s, a, b, kv_head, pos, end, slice, offset);
    else
        tile_keys_by<1, D, ROWS, T>(tile, s, a, b, kv_head, pos, end, slice, offset);
}

/* sum[i][j] = row ty*RM+i of A times row tx+16j of B. */
template <int D, int RM, int RN>
SP_DEVICE void tile_dot(const float *A, const float *B, int d, float sum[RM][RN])
{
    A += (int)threadIdx.x / 16 * RM * TILE_LD<D>;
    B += (int)threadIdx.x % 16 * TILE_LD<D>;
    for (int i = 0; i < RM; i++)
        for (int j = 0; j < RN; j++)
            sum[i][j] = 0;
#pragma unroll 2
    for (int k = 0; k < d; k += 4) {
        float a[RM][4], b[RN][4];

        for (int i = 0; i < RM; i++)
            sp_load<4>(A + i * TILE_LD<D> + k, a[i]);
        for (int j = 0; j < RN; j++)
            sp_load<4>(B + 16 * j * TILE_LD<D> + k, b[j]);
        for (int l = 0; l < 4; l++)
            for (int i = 0; i < RM; i++)
                for (int j = 0; j < RN; j++)
                    sum[i][j] = fmaf(a[i][l], b[j][l], sum[i][j]);
    }
}

/* Column of the c-th element a thread has of a row of D: four together, tx apart. */
SP_DEVICE int tile_column(int c)
{
    return c / 4 * 64 + (int)threadIdx.x % 16 * 4 + c % 4;
}

/* sum[i][c] += sum over k < n of W(i,k) X(k, tile_column(c)). Thread row i is row ty*R+i of W,
 * whose elements are `row` and `step` floats apart. */
template <int D, int R>
SP_DEVICE void tile_mix(const float *W, int row, int step, const float *X, int n,
                        float sum[R][D / 16])
{
    W += (int)threadIdx.x / 16 * R * row;
    X += (int)threadIdx.x % 16 * 4;
#pragma unroll 4
    for (int k = 0; k < n; k++) {
        float w[R], x[D / 16];

        for (int i = 0; i < R; i++)
            w[i] = W[i * row + k * step];
        for (int c = 0; c < D / 16; c += 4)
            sp_load<4>(X + k * TILE_LD<D> + c * 16, x + c);
        for (int i = 0; i < R; i++)
            for (int c = 0; c < D / 16; c++)
                sum[i][c] = fmaf(w[i], x[c], sum[i][c]);
    }
}

#endif
