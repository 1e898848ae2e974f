/*
 * Tiles of bf16 in shared memory for the tensor cores: (rows, D), D the head size rounded up to
 * what there is a kernel for. Eight elements more a row let the 16-byte rows that a load takes
 * together meet all banks.
 */
#ifndef SP_CUDA_ATTENTION_MMA_H
#define SP_CUDA_ATTENTION_MMA_H

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/mma.h"

enum {
    MMA_WARPS = 4,
    MMA_THREADS = MMA_WARPS * SP_WARP,
    MMA_ROWS = MMA_WARPS * 16 /* of the tile that the block keeps, 16 a warp */
};

#define LOG2E 1.4426950408889634f

template <int D> constexpr int MMA_LD = D + 8;

/* Begins to copy ROWS rows of queries from `row` on; 0 from the n-th on, and in columns from d on.
 * */
template <int D, int ROWS>
SP_DEVICE void mma_queries(bf16 *tile, const struct attention_shape &a, int b, int head, int row,
                           int n, const bf16 *q)
{
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < ROWS * (D / 8); i += MMA_THREADS) {
        int r = i / (D / 8), c = i % (D / 8) * 8;
        bool real = r < n && c < a.d;

        sp_copy_async(tile + r * MMA_LD<D> + c,
                      q + (real ? attention_query(a, b, row + r, head) + c : 0), real);
    }
}

/* The same of keys from `pos` on, those before `end`; of values if `offset` is kv_heads * d. */
template <int D, int ROWS, int N>
SP_DEVICE void mma_keys(bf16 *tile, const struct attention_slices<N> &s,
                        const struct attention_shape &a, int b, int kv_head, int pos, int end,
                        int slice, int offset)
{
    for (int i = (int)threadIdx.x; i < ROWS * (D / 8); i += MMA_THREADS) {
        int r = i / (D / 8), c = i % (D / 8) * 8;
        const bf16 *from = (const bf16 *)s.kv[slice];
        bool real = pos + r < end && c < a.d;

        if (real)
            from = attention_key<const bf16>(s, a, b, kv_head, pos + r, slice) + offset + c;
        sp_copy_async(tile + r * MMA_LD<D> + c, from, real);
    }
}

/* sum(16, 8n) += 16 rows of A times n*8 rows of B, over D columns. Unrolled in part: loads of all
 * of it at once take the registers of other sums. */
template <int D, int n> SP_DEVICE void mma_dot(float sum[n][4], const bf16 *A, const bf16 *B)
{
#pragma unroll 4
    for (int k = 0; k < D; k += 16) {
        unsigned a[4], b[4];

        sp_mma_rows(a, A + k, MMA_LD<D>);
#pragma unroll
        for (int j = 0; j < n; j += 2) {
            sp_mma_columns(b, B + j * 8 * MMA_LD<D> + k, MMA_LD<D>);
            sp_mma(sum[j], a, b);
            sp_mma(sum[j + 1], a, b + 2);
        }
    }
}

/* sum(16,D) += w(16,8n), rounded, times 8n rows of B. */
template <int D, int n>
SP_DEVICE void mma_mix(float sum[D / 8][4], const float w[n][4], const bf16 *B)
{
#pragma unroll
    for (int j = 0; j < n; j += 2) {
        unsigned a[4], b[4];

        sp_mma_round(a, w[j], w[j + 1]);
#pragma unroll
        for (int c = 0; c < D / 8; c += 2) {
            sp_mma_across(b, B + j * 8 * MMA_LD<D> + c * 8, MMA_LD<D>);
            sp_mma(sum[c], a, b);
            sp_mma(sum[c + 1], a, b + 2);
        }
    }
}

/* A lane's part of a row of d elements, from `to` on: its row i of sums, times `factor`. */
template <int D>
SP_DEVICE void mma_put(bf16 *to, const float sum[D / 8][4], int i, int d, float factor)
{
#pragma unroll
    for (int c = 0; c < D / 8; c++)
        if (c * 8 < d)
            *(unsigned *)(to + c * 8) =
                sp_bf16_pair(sum[c][2 * i] * factor, sum[c][2 * i + 1] * factor);
}

#endif
