/*
 * Causal attention, forward: a block has a tile of queries of one head, and goes through the tiles
 * of keys that they see, in order. S = scale Q K^T, m' = max(m, rowmax S), P = e^(S - m'):
 *
 *   l = l e^(m - m') + rowsum P,  O = O e^(m - m') + P V,  at the end  O = O / l,  lse = m + log l
 *
 * Arithmetic is in f32 on tiles in shared memory; O stays in registers.
 */
#include "kernels/cuda/attention/attention_tile.h"

/* The softmax over the keys so far, for the thread's RM queries: those of the tile from ty*RM
 * on. */
template <int RM, int D> struct tile_softmax {
    float out[RM][D / 16], sum[RM], max[RM];
};

/* Adds keys pos+tx+16j to query i, which sees those before `visible`: s = Q K^T becomes its row of
 * P(M,16*RN). */
template <typename T, int RN, int RM, int D>
SP_DEVICE void tile_softmax_meet(struct tile_softmax<RM, D> &so_far, int i, float s[RN], int tx,
                                 int ty, int pos, int visible, float scale, float *P)
{
    float now = so_far.max[i], correction;

    for (int j = 0; j < RN; j++) {
        s[j] = pos + tx + 16 * j < visible ? s[j] * scale : -INFINITY;
        now = fmaxf(now, s[j]);
    }
    now = sp_lanes_max(now, 16);
    correction = sp_exp<T>(so_far.max[i] - now);
    so_far.max[i] = now;
    so_far.sum[i] *= correction;
    for (int c = 0; c < D / 16; c++)
        so_far.out[i][c] *= correction;
    for (int j = 0; j < RN; j++) {
        float p = sp_exp<T>(s[j] - now);

        so_far.sum[i] += p;
        P[(ty * RM + i) * SCORE_LD<16 * RN> + tx + 16 * j] = p;
    }
}

/* Writes O and lse of query i, if the tile has so many. */
template <typename T, int RM, int D>
SP_DEVICE void tile_softmax_finish(const struct tile_softmax<RM, D> &so_far, int i, int tx, int ty,
                                   const struct attention_shape &a, const struct query_tile &t,
                                   T *o, float *lse)
{
    int r = ty * RM + i;
    float total = sp_lanes_sum(so_far.sum[i], 16), inverse = 1.0f / total;

    if (r >= t.rows)
        return;
    if (tx == 0)
        lse[attention_row(a, t.b, t.row + r, t.head)] = so_far.max[i] + logf(total);
    for (int c = 0; c < D / 16; c++)
        if (tile_column(c) < a.d)
            sp_put(o + attention_query(a, t.b, t.row + r, t.head) + tile_column(c),
                   so_far.out[i][c] * inverse);
}

/* Tiles of M queries and N keys; K and V take turns in the same shared memory. */
template <typename T, int D, int M, int N>
SP_KERNEL void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_kernel(const __grid_constant__ struct attention_shape a,
                     const __grid_constant__ struct attention_slices<ATTENTION_SLICES> kv,
                     const T *q, T *o, float *lse)
{
    constexpr int RM = M / 16, RN = N / 16;
    float *Q = sp_shared<float>(), *K = Q + M * TILE_LD<D>, *P = K + N * TILE_LD<D>;
    struct query_tile t = query_tile_of<M>(a);
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, slice = 0;
    struct tile_softmax<RM, D> so_far;

    for (int i = 0; i < RM; i++) {
        so_far.max[i] = -INFINITY;
        so_far.sum[i] = 0;
        for (int c = 0; c < D / 16; c++)
            so_far.out[i][c] = 0;
    }
    tile_queries<D, M>(Q, a, t.b, t.head, t.row, t.rows, q);
    for (int pos = 0; pos < t.end; pos += N) {
        float s[RM][RN];

        while (pos >= kv.end[slice])
            slice++;
        __syncthreads(); /* V was read */
        tile_keys<T, D, N>(K, kv, a, t.b, t.kv_head, pos, t.end, slice, 0);
        __syncthreads();
        tile_dot<D, RM, RN>(Q, K, a.d, s);
        for (int i = 0; i < RM; i++) {
            int visible = t.first + ty * RM + i + 1;

            visible = visible < t.end ? visible : t.end;
            tile_softmax_meet<T, RN>(so_far, i, s[i], tx, ty, pos, visible, a.scale, P);
        }
        __syncthreads(); /* K was read, P is written */
        tile_keys<T, D, N>(K, kv, a, t.b, t.kv_head, pos, t.end, slice, a.kv_heads * a.d);
        __syncthreads();
        tile_mix<D, RM>(P, SCORE_LD<N>, 1, K, N, so_far.out);
    }
    for (int i = 0; i < RM; i++)
        tile_softmax_finish(so_far, i, tx, ty, a, t, o, lse);
}

template <typename T, int D, int M, int N>
static void attention_launch(const struct sp_backend *k, const struct attention_shape &a,
                             const struct attention_slices<ATTENTION_SLICES> &s, const void *q,
                             void *o, float *lse)
{
    size_t floats = (size_t)(M + N) * TILE_LD<D> + (size_t)M * SCORE_LD<N>;
    size_t blocks = (size_t)sp_blocks((size_t)a.q_len, M) * (size_t)a.batch * (size_t)a.heads;

    sp_launch(k, "attention", attention_kernel<T, D, M, N>, (unsigned)blocks, ATTENTION_THREADS,
              floats * sizeof(float), a, s, (const T *)q, (T *)o, lse);
}

template <typename T>
static void attention(const struct sp_backend *k, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse)
{
    const void *const rows[] = {q, o};
    struct attention_shape a = attention_shape_of<T>(at, kv, NULL, rows, 2);
    struct attention_slices<ATTENTION_SLICES> s;

    attention_take(at, 0, at->n_kv, 0, kv, &s);
    if (k->dtype == SP_BF16 && attention_mma_can(&a))
        sp_cuda_attention_mma(k, &a, &s, q, o, lse);
    else if (a.d <= 64)
        attention_launch<T, 64, 64, 64>(k, a, s, q, o, lse);
    else if (a.d <= 128)
        attention_launch<T, 128, 64, 32>(k, a, s, q, o, lse);
    else
        attention_launch<T, 256, 32, 32>(k, a, s, q, o, lse);
}

extern "C" void sp_cuda_attention_fill(struct sp_backend *backend)
{
    backend->attention = backend->dtype == SP_BF16 ? attention<bf16> : attention<float>;
    sp_cuda_attention_bwd_fill(backend);
    sp_cuda_attention_merge_fill(backend);
    sp_cuda_rope_fill(backend);
}
