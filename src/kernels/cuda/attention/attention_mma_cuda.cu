/*
 * Causal attention, forward, on the tensor cores: the equations of attention_cuda.cu in tiles of 64
 * queries and 64 keys, 16 queries a warp. Operands are bf16, P too; S, sums and O are f32.
 *
 * V of a tile is copied while S is computed, and K of the next tile while O is.
 */
#include "kernels/cuda/attention/attention_mma.h"

enum { FWD_KEYS = 64 };

/* The softmax over the keys so far, for a lane's two queries: rows lane/4 and lane/4+8 of the
 * warp's 16. */
template <int D> struct mma_softmax {
    float sum[2] = {}, max[2] = {-INFINITY, -INFINITY}, out[D / 8][4] = {};
};

/* Adds 8n keys from `pos` on to query i, which sees those before `visible`: s = Q K^T becomes P,
 * which is 2^(scale (s - max)). */
template <int D, int n>
SP_DEVICE void mma_softmax_meet(struct mma_softmax<D> &so_far, int i, float s[n][4], int pos,
                                int visible, float scale)
{
    int lane = (int)threadIdx.x % SP_WARP, first = pos + lane % 4 * 2;
    float now = so_far.max[i], correction;

#pragma unroll
    for (int j = 0; j < n; j++)
        for (int l = 0; l < 2; l++) {
            float *x = &s[j][2 * i + l];

            *x = first + j * 8 + l < visible ? *x : -INFINITY;
            now = fmaxf(now, *x);
        }
    now = sp_lanes_max(now, 4);
    correction = exp2f((so_far.max[i] - now) * scale);
    so_far.max[i] = now;
    so_far.sum[i] *= correction;
#pragma unroll
    for (int c = 0; c < D / 8; c++)
        for (int l = 0; l < 2; l++)
            so_far.out[c][2 * i + l] *= correction;
#pragma unroll
    for (int j = 0; j < n; j++)
        for (int l = 0; l < 2; l++) {
            float *x = &s[j][2 * i + l];

            *x = exp2f((*x - now) * scale);
            so_far.sum[i] += *x;
        }
}

/* Writes O and lse of query i, if the tile has so many. */
template <int D>
SP_DEVICE void mma_softmax_finish(const struct mma_softmax<D> &so_far, int i,
                                  const struct attention_shape &a, const struct query_tile &t,
                                  bf16 *o, float *lse)
{
    int lane = (int)threadIdx.x % SP_WARP, r = (int)threadIdx.x / SP_WARP * 16 + lane / 4 + 8 * i;
    float total = sp_lanes_sum(so_far.sum[i], 4), inverse = 1.0f / total;
    bf16 *to = o + attention_query(a, t.b, t.row + r, t.head) + lane % 4 * 2;

    if (r >= t.rows)
        return;
    if (lane % 4 == 0)
        lse[attention_row(a, t.b, t.row + r, t.head)] = so_far.max[i] * a.scale + logf(total);
    mma_put<D>(to, so_far.out, i, a.d, inverse);
}

template <int D>
SP_KERNEL void __launch_bounds__(MMA_THREADS, D == 64 ? 4 : 3)
    attention_mma_kernel(const __grid_constant__ struct attention_shape a,
                         const __grid_constant__ struct attention_slices<ATTENTION_SLICES> kv,
                         const bf16 *q, bf16 *o, float *lse)
{
    bf16 *Q = sp_shared<bf16>(), *K = Q + MMA_ROWS * MMA_LD<D>, *V = K + FWD_KEYS * MMA_LD<D>;
    struct query_tile t = query_tile_of<MMA_ROWS>(a);
    int mine = (int)threadIdx.x / SP_WARP * 16, lane = (int)threadIdx.x % SP_WARP, slice = 0;
    struct mma_softmax<D> so_far;
    float scale = a.scale * LOG2E; /* powers of 2 from here on */

    mma_queries<D, MMA_ROWS>(Q, a, t.b, t.head, t.row, t.rows, q);
    mma_keys<D, FWD_KEYS>(K, kv, a, t.b, t.kv_head, 0, t.end, slice, 0);
    sp_copy_commit();
    for (int pos = 0; pos < t.end; pos += FWD_KEYS) {
        float s[FWD_KEYS / 8][4] = {};

        sp_copy_wait<0>();
        __syncthreads(); /* K is there, V was read */
        mma_keys<D, FWD_KEYS>(V, kv, a, t.b, t.kv_head, pos, t.end, slice, a.kv_heads * a.d);
        sp_copy_commit();
        mma_dot<D, FWD_KEYS / 8>(s, Q + mine * MMA_LD<D>, K);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int visible = a.q_pos + t.row + mine + lane / 4 + 8 * i + 1;

            visible = visible < t.end ? visible : t.end;
            mma_softmax_meet<D, FWD_KEYS / 8>(so_far, i, s, pos, visible, scale);
        }
        sp_copy_wait<0>();
        __syncthreads(); /* V is there, K was read */
        if (pos + FWD_KEYS < t.end) {
            while (pos + FWD_KEYS >= kv.end[slice])
                slice++;
            mma_keys<D, FWD_KEYS>(K, kv, a, t.b, t.kv_head, pos + FWD_KEYS, t.end, slice, 0);
            sp_copy_commit();
        }
        mma_mix<D, FWD_KEYS / 8>(so_far.out, s, V);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        mma_softmax_finish<D>(so_far, i, a, t, o, lse);
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
