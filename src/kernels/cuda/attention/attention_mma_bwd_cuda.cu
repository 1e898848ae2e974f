/*
 * Causal attention, backward, on the tensor cores: the equations and the two passes of
 * attention_bwd_cuda.cu. Operands are bf16, P and dS too; sums are f32. A warp keeps 16 keys, and
 * computes S and dP transposed, or 16 queries. The next tile comes while one is computed.
 */
#include "kernels/cuda/attention/attention_mma.h"

/* Queries of a tile: Q(M,D), dO(M,D), then lse(M) log2(e) and D(M). */
template <int D, int M> struct mma_stage {
    bf16 q[M * MMA_LD<D>], d_o[M * MMA_LD<D>];
    float lse[M], means[M];
};

template <int D, int M>
SP_DEVICE void stage_queries(struct mma_stage<D, M> *stage, const struct attention_shape &a, int b,
                             int head, int row, const bf16 *q, const bf16 *d_o, const float *lse,
                             const float *means)
{
    size_t at = attention_row(a, b, row, head);
    int n = a.q_len - row, i = (int)threadIdx.x;

    mma_queries<D, M>(stage->q, a, b, head, row, n, q);
    mma_queries<D, M>(stage->d_o, a, b, head, row, n, d_o);
    sp_copy_commit();
    if (i < M) {
        stage->lse[i] = i < n ? lse[at + (size_t)i] * LOG2E : 0;
        stage->means[i] = i < n ? means[at + (size_t)i] : 0;
    }
}

/* From S^T / scale and dP^T, P^T and dS^T of a warp's keys, `key` and on, and the queries of a tile,
 * `row` and on. Queries past the last are 0, and so is what they add. */
template <int D, int M>
SP_DEVICE void mma_dkv_scores(const struct mma_stage<D, M> *stage, const struct attention_shape &a,
                              int row, int key, float scale, float s[M / 8][4], float dp[M / 8][4])
{
    int lane = (int)threadIdx.x % SP_WARP;

#pragma unroll
    for (int j = 0; j < M / 8; j++)
        for (int l = 0; l < 4; l++) {
            int c = j * 8 + lane % 4 * 2 + l % 2; /* the query, in the tile */
            bool seen = key + lane / 4 + l / 2 * 8 <= a.q_pos + row + c;

            s[j][l] = seen ? exp2f(s[j][l] * scale - stage->lse[c]) : 0;
            dp[j][l] = seen ? s[j][l] * (dp[j][l] - stage->means[c]) : 0;
        }
}

/* A lane's part of a row of keys and of values, from `to` on: its row i of dK and dV, in place of what
 * is there if `first`, or added to it. */
template <int D>
SP_DEVICE void mma_dkv_put(bf16 *to, const struct attention_shape &a, int i,
                           const float dk[D / 8][4], const float dv[D / 8][4], bool first)
{
#pragma unroll
    for (int c = 0; c < D / 8; c++)
        if (c * 8 < a.d) {
            unsigned *k = (unsigned *)(to + c * 8), *v = k + a.kv_heads * a.d / 2;
            float old_k[2] = {0, 0}, old_v[2] = {0, 0};

            if (!first) {
                sp_unpack(*k, old_k);
                sp_unpack(*v, old_v);
            }
            *k = sp_bf16_pair(dk[c][2 * i] * a.scale + old_k[0],
                              dk[c][2 * i + 1] * a.scale + old_k[1]);
            *v = sp_bf16_pair(dv[c][2 * i] + old_v[0], dv[c][2 * i + 1] + old_v[1]);
        }
}

/* A tile of 64 keys of `kv` from blockIdx on; M queries at a time, of one head after the other. */
template <int D, int M>
SP_KERNEL void __launch_bounds__(MMA_THREADS)
    attention_mma_dkv_kernel(const __grid_constant__ struct attention_shape a,
                             const __grid_constant__ struct attention_slices<ATTENTION_CHUNK> kv,
                             const __grid_constant__ struct attention_slices<ATTENTION_CHUNK> dkv,
                             const bf16 *q, const bf16 *d_o, const float *lse, const float *means,
                             bool first)
{
    struct mma_stage<D, M> *stages = sp_shared<struct mma_stage<D, M>>();
    bf16 *K = (bf16 *)(stages + 2), *V = K + MMA_ROWS * MMA_LD<D>;
    int all = a.batch * a.kv_heads, b = (int)blockIdx.x % all / a.kv_heads;
    int kv_head = (int)blockIdx.x % a.kv_heads, group = a.heads / a.kv_heads;
    int pos = kv.begin + (int)blockIdx.x / all * MMA_ROWS, end = kv.end[kv.n - 1], slice = 0;
    int row0 = pos > a.q_pos ? (pos - a.q_pos) / M * M : 0; /* of the first query that may see it */
    int tiles = pos < a.seen ? (a.q_len - row0 + M - 1) / M * group : 0, row = row0;
    int next_head = kv_head * group, next = row0; /* the tile after this one */
    int mine = (int)threadIdx.x / SP_WARP * 16, lane = (int)threadIdx.x % SP_WARP;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {}, scale = a.scale * LOG2E;

    while (pos >= kv.end[slice])
        slice++;
    if (tiles) {
        int seen = end < a.seen ? end : a.seen; /* keys that nobody sees may hold anything */

        mma_keys<D, MMA_ROWS>(K, kv, a, b, kv_head, pos, seen, slice, 0);
        mma_keys<D, MMA_ROWS>(V, kv, a, b, kv_head, pos, seen, slice, a.kv_heads * a.d);
        stage_queries(stages, a, b, kv_head * group, row0, q, d_o, lse, means);
    }
    for (int t = 0; t < tiles; t++, row = next) {
        const struct mma_stage<D, M> *stage = stages + t % 2;
        float s[M / 8][4] = {}, dp[M / 8][4] = {};

        if (t + 1 < tiles) {
            next += M;
            if (next >= a.q_len) {
                next = row0;
                next_head++;
            }
            stage_queries(stages + (t + 1) % 2, a, b, next_head, next, q, d_o, lse, means);
            sp_copy_wait<1>();
        } else {
            sp_copy_wait<0>();
        }
        __syncthreads(); /* the tile is there */
        mma_dot<D, M / 8>(s, K + mine * MMA_LD<D>, stage->q);
        mma_dot<D, M / 8>(dp, V + mine * MMA_LD<D>, stage->d_o);
        mma_dkv_scores(stage, a, row, pos + mine, scale, s, dp);
        mma_mix<D, M / 8>(dv, s, stage->d_o);
        mma_mix<D, M / 8>(dk, dp, stage->q);
        __syncthreads(); /* the tile was read */
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int key = pos + mine + lane / 4 + 8 * i;
        bf16 *to;

        if (key >= end || (key >= a.seen && !first))
            continue;
        to = attention_key<bf16>(dkv, a, b, kv_head, key, slice) + lane % 4 * 2;
        mma_dkv_put<D>(to, a, i, dk, dv, first);
    }
}

/* From S / scale and dP, dS of a warp's queries and of N keys, `pos` and on. A lane has two queries,
 * which see the keys before `visible`. */
template <int N>
SP_DEVICE void mma_dq_scores(const float s[N / 8][4], float dp[N / 8][4], int pos,
                             const int visible[2], float scale, const float shift[2],
                             const float mean[2])
{
    int lane = (int)threadIdx.x % SP_WARP;

#pragma unroll
    for (int j = 0; j < N / 8; j++)
        for (int l = 0; l < 4; l++) {
            bool seen = pos + j * 8 + lane % 4 * 2 + l % 2 < visible[l / 2];

            dp[j][l] = seen ? exp2f(s[j][l] * scale - shift[l / 2]) * (dp[j][l] - mean[l / 2]) : 0;
        }
}

/* A tile of 64 queries; N keys at a time. */
template <int D, int N>
SP_KERNEL void __launch_bounds__(MMA_THREADS)
    attention_mma_dq_kernel(const __grid_constant__ struct attention_shape a,
                            const __grid_constant__ struct attention_slices<ATTENTION_SLICES> kv,
                            const bf16 *q, const bf16 *d_o, const float *lse, const float *means,
                            bf16 *dq)
{
    constexpr int STAGE = N * MMA_LD<D>;
    bf16 *Q = sp_shared<bf16>(), *dO = Q + MMA_ROWS * MMA_LD<D>;
    bf16 *K = dO + MMA_ROWS * MMA_LD<D>, *V = K + 2 * STAGE; /* two stages each */
    struct query_tile t = query_tile_of<MMA_ROWS>(a);
    int mine = (int)threadIdx.x / SP_WARP * 16, lane = (int)threadIdx.x % SP_WARP;
    int slice = 0, stage = 0;
    size_t at = attention_row(a, t.b, t.row, t.head);
    float sum[D / 8][4] = {}, scale = a.scale * LOG2E, shift[2], mean[2];
    int visible[2];

    for (int i = 0; i < 2; i++) {
        int r = mine + lane / 4 + 8 * i;

        shift[i] = r < t.rows ? lse[at + (size_t)r] * LOG2E : 0;
        mean[i] = r < t.rows ? means[at + (size_t)r] : 0;
        visible[i] = r < t.rows ? a.q_pos + t.row + r + 1 : 0;
    }
    mma_queries<D, MMA_ROWS>(Q, a, t.b, t.head, t.row, t.rows, q);
    mma_queries<D, MMA_ROWS>(dO, a, t.b, t.head, t.row, t.rows, d_o);
    mma_keys<D, N>(K, kv, a, t.b, t.kv_head, 0, t.end, 0, 0);
    mma_keys<D, N>(V, kv, a, t.b, t.kv_head, 0, t.end, 0, a.kv_heads * a.d);
    sp_copy_commit();
    for (int pos = 0; pos < t.end; pos += N, stage = 1 - stage) {
        int next = pos + N;
        float s[N / 8][4] = {}, dp[N / 8][4] = {};

        if (next < t.end) {
            while (next >= kv.end[slice])
                slice++;
            mma_keys<D, N>(K + (1 - stage) * STAGE, kv, a, t.b, t.kv_head, next, t.end, slice, 0);
            mma_keys<D, N>(V + (1 - stage) * STAGE, kv, a, t.b, t.kv_head, next, t.end, slice,
                           a.kv_heads * a.d);
            sp_copy_commit();
            sp_copy_wait<1>();
        } else {
            sp_copy_wait<0>();
        }
        __syncthreads(); /* the tile is there */
        mma_dot<D, N / 8>(s, Q + mine * MMA_LD<D>, K + stage * STAGE);
        mma_dot<D, N / 8>(dp, dO + mine * MMA_LD<D>, V + stage * STAGE);
        mma_dq_scores<N>(s, dp, pos, visible, scale, shift, mean);
        mma_mix<D, N / 8>(sum, dp, K + stage * STAGE);
        __syncthreads(); /* the tile was read */
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int r = mine + lane / 4 + 8 * i;
        bf16 *to = dq + attention_query(a, t.b, t.row + r, t.head) + lane % 4 * 2;

        if (r < t.rows)
            mma_put<D>(to, sum, i, a.d, a.scale);
    }
}

template <int D, int M, int N> static void mma_bwd(const struct attention_grads &w)
{
    const struct attention_shape &a = w.a;
    size_t kept = (size_t)2 * MMA_ROWS * MMA_LD<D> * sizeof(bf16);
    size_t blocks = (size_t)sp_blocks((size_t)a.q_len, MMA_ROWS) * (size_t)a.batch;
    struct attention_slices<ATTENTION_SLICES> all;

    attention_each_chunk(w, MMA_ROWS, [&](const auto &kv, const auto &dkv, size_t tiles) {
        sp_launch(w.k, "attention_mma_dkv", attention_mma_dkv_kernel<D, M>,
                  (unsigned)(tiles * (size_t)a.batch * (size_t)a.kv_heads), MMA_THREADS,
                  kept + 2 * sizeof(struct mma_stage<D, M>), a, kv, dkv, (const bf16 *)w.q,
                  (const bf16 *)w.d_o, w.lse, w.means, w.first);
    });
    attention_take(w.at, 0, w.at->n_kv, 0, w.kv, &all);
    sp_launch(w.k, "attention_mma_dq", attention_mma_dq_kernel<D, N>,
              (unsigned)(blocks * (size_t)a.heads), MMA_THREADS,
              kept + (size_t)4 * N * MMA_LD<D> * sizeof(bf16), a, all, (const bf16 *)w.q,
              (const bf16 *)w.d_o, w.lse, w.means, (bf16 *)w.dq);
}

void sp_cuda_attention_mma_bwd(const struct attention_grads *w)
{
    if (w->a.d <= 64)
        mma_bwd<64, 64, 64>(*w);
    else
        mma_bwd<128, 32, 32>(*w);
}
