/*
 * Causal attention, forward, on the tensor cores: the equations of attention_cuda.cu in tiles of 64
 * queries and 64 keys, 16 queries a warp. Operands are bf16, P too; S, sums and O are f32.
 *
 * V of a tile comes while S is computed, and K of the next while O is.
 */
#include "kernels/cuda/attention/attention_mma.h"

enum { FWD_KEYS = 64 };

template <int D>
SP_KERNEL void __launch_bounds__(MMA_THREADS, D == 64 ? 4 : 3)
    attention_mma_kernel(const __grid_constant__ struct attention_shape a,
                         const __grid_constant__ struct attention_slices<ATTENTION_SLICES> kv,
                         const bf16 *q, bf16 *o, float *lse)
{
    bf16 *Q = sp_shared<bf16>(), *K = Q + MMA_ROWS * MMA_LD<D>, *V = K + FWD_KEYS * MMA_LD<D>;
    int all = a.batch * a.heads, b = (int)blockIdx.x % all / a.heads;
    int head = (int)blockIdx.x % a.heads, kv_head = head / (a.heads / a.kv_heads);
    /* The last tiles see the most keys: longest first. */
    int row = (a.q_len - 1) / MMA_ROWS * MMA_ROWS - (int)blockIdx.x / all * MMA_ROWS;
    int rows = a.q_len - row < MMA_ROWS ? a.q_len - row : MMA_ROWS, slice = 0;
    int end = a.q_pos + row + rows < a.seen ? a.q_pos + row + rows : a.seen;
    int mine = (int)threadIdx.x / SP_WARP * 16, lane = (int)threadIdx.x % SP_WARP;
    float out[D / 8][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    float scale = a.scale * LOG2E; /* powers of 2 from here on */

    mma_queries<D, MMA_ROWS>(Q, a, b, head, row, rows, q);
    mma_keys<D, FWD_KEYS>(K, kv, a, b, kv_head, 0, end, slice, 0);
    sp_copy_commit();
    for (int pos = 0; pos < end; pos += FWD_KEYS) {
        float s[FWD_KEYS / 8][4] = {};

        sp_copy_wait<0>();
        __syncthreads(); /* K is there, V was read */
        mma_keys<D, FWD_KEYS>(V, kv, a, b, kv_head, pos, end, slice, a.kv_heads * a.d);
        sp_copy_commit();
        mma_dot<D, FWD_KEYS / 8>(s, Q + mine * MMA_LD<D>, K);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* the lane's two rows */
            int visible = a.q_pos + row + mine + lane / 4 + 8 * i + 1, first = pos + lane % 4 * 2;
            float now = max[i], correction;

            visible = visible < end ? visible : end;
#pragma unroll
            for (int j = 0; j < FWD_KEYS / 8; j++)
                for (int l = 0; l < 2; l++) {
                    float *x = &s[j][2 * i + l];

                    *x = first + j * 8 + l < visible ? *x : -INFINITY;
                    now = fmaxf(now, *x);
                }
            now = sp_lanes_max(now, 4);
            correction = exp2f((max[i] - now) * scale);
            max[i] = now;
            sum[i] *= correction;
#pragma unroll
            for (int c = 0; c < D / 8; c++)
                for (int l = 0; l < 2; l++)
                    out[c][2 * i + l] *= correction;
#pragma unroll
            for (int j = 0; j < FWD_KEYS / 8; j++)
                for (int l = 0; l < 2; l++) {
                    float *x = &s[j][2 * i + l];

                    *x = exp2f((*x - now) * scale);
                    sum[i] += *x;
                }
        }
        sp_copy_wait<0>();
        __syncthreads(); /* V is there, K was read */
        if (pos + FWD_KEYS < end) {
            while (pos + FWD_KEYS >= kv.end[slice])
                slice++;
            mma_keys<D, FWD_KEYS>(K, kv, a, b, kv_head, pos + FWD_KEYS, end, slice, 0);
            sp_copy_commit();
        }
        mma_mix<D, FWD_KEYS / 8>(out, s, V);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int r = mine + lane / 4 + 8 * i;
        float total = sp_lanes_sum(sum[i], 4), inverse = 1.0f / total;
        bf16 *to = o + attention_query(a, b, row + r, head) + lane % 4 * 2;

        if (r >= rows)
            continue;
        if (lane % 4 == 0)
            lse[((size_t)b * (size_t)a.heads + (size_t)head) * (size_t)a.q_len +
                (size_t)(row + r)] = max[i] * a.scale + logf(total);
#pragma unroll
        for (int c = 0; c < D / 8; c++)
            if (c * 8 < a.d)
                *(unsigned *)(to + c * 8) =
                    sp_bf16_pair(out[c][2 * i] * inverse, out[c][2 * i + 1] * inverse);
    }
}

void sp_cuda_attention_mma(const struct sp_backend *k, const struct attention_shape *a,
                           const struct attention_slices<ATTENTION_SLICES> *kv, const void *q,
                           void *o, float *lse)
{
    size_t blocks = (size_t)sp_blocks((size_t)a->q_len, MMA_ROWS) * (size_t)a->batch;
    int ld = a->d <= 64 ? MMA_LD<64> : MMA_LD<128>;

    sp_launch(k, "attention_mma", a->d <= 64 ? attention_mma_kernel<64> : attention_mma_kernel<128>,
              (unsigned)(blocks * (size_t)a->heads), MMA_THREADS,
              (size_t)(MMA_ROWS + 2 * FWD_KEYS) * (size_t)ld * sizeof(bf16), *a, *kv,
              (const bf16 *)q, (bf16 *)o, lse);
}
