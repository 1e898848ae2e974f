/*
 * Causal attention, backward. Forward was S = scale Q K^T, P = e^(S - lse), O = P V, so, with D =
 * rowsum(dO o O):
 *
 *   dV += P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ = scale dS K,  dK += scale dS^T Q
 *
 * One pass computes dK and dV: a block has a tile of keys of one key/value head, and goes through the
 * queries that see it, in order. Another computes dQ: a block has a tile of queries, and goes through
 * its keys, in order. Each sum belongs to one thread, so it has one order, at the price of computing S
 * and dP twice.
 */
#include "kernels/cuda/attention/attention_tile.h"

/* D(batch,a,q_len); `lanes` threads, a power of two, have one row of one head. */
template <typename T, int V>
SP_KERNEL void attention_means_kernel(const __grid_constant__ struct attention_shape a, int lanes,
                                      const T *o, const T *d_o, float *D)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / (unsigned)lanes;
    size_t tokens = (size_t)a.batch * (size_t)a.q_len, token = unit / (size_t)a.heads;
    size_t head = unit % (size_t)a.heads, at = unit * (size_t)a.d;
    float sum = 0;

    for (int c = (int)threadIdx.x % lanes * V; token < tokens && c < a.d; c += lanes * V) {
        float x[V], y[V];

        sp_load<V>(o + at + c, x);
        sp_load<V>(d_o + at + c, y);
        for (int v = 0; v < V; v++)
            sum = fmaf(x[v], y[v], sum);
    }
    sum = sp_lanes_sum(sum, lanes);
    if (token < tokens && (int)threadIdx.x % lanes == 0)
        D[(token / (size_t)a.q_len * (size_t)a.heads + head) * (size_t)a.q_len +
          token % (size_t)a.q_len] = sum;
}

/* p[i][j] = P and dp[i][j] = dS of query row+ty*RM+i and key pos+tx+16j, from S/scale and dP; 0 for
 * keys that the query does not see, and for queries from `rows` on. */
template <typename T, int RM, int RN>
SP_DEVICE void scores(const struct attention_shape &a, int row, int rows, int pos, const float *lse,
                      const float *D, float p[RM][RN], float dp[RM][RN])
{
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;

    for (int i = 0; i < RM; i++) {
        int r = ty * RM + i, visible = r < rows ? a.q_pos + row + r + 1 : 0;
        float shift = r < rows ? lse[row + r] : 0, mean = r < rows ? D[row + r] : 0;

        for (int j = 0; j < RN; j++) {
            bool seen = pos + tx + 16 * j < visible;

            p[i][j] = seen ? sp_exp<T>(fmaf(p[i][j], a.scale, -shift)) : 0;
            dp[i][j] = seen ? p[i][j] * (dp[i][j] - mean) : 0;
        }
    }
}

/* dK of a key to its row at `to`, dV to_v elements further: in place of what is there if `first`, or
 * added to it. */
template <typename T, int D>
SP_DEVICE void dkv_put(T *to, const struct attention_shape &a, int to_v, const float dk[D / 16],
                       const float dv[D / 16], bool first)
{
    for (int c = 0; c < D / 16; c++)
        if (tile_column(c) < a.d) {
            T *k = to + tile_column(c), *v = k + to_v;

            sp_put(k, dk[c] * a.scale + (first ? 0 : sp_value(*k)));
            sp_put(v, dv[c] + (first ? 0 : sp_value(*v)));
        }
}

/* A tile of N keys of `kv` from blockIdx on; M queries at a time. */
template <typename T, int D, int M, int N>
SP_KERNEL void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_dkv_kernel(const __grid_constant__ struct attention_shape a,
                         const __grid_constant__ struct attention_slices<ATTENTION_CHUNK> kv,
                         const __grid_constant__ struct attention_slices<ATTENTION_CHUNK> dkv,
                         const T *q, const T *d_o, const float *lse, const float *means, bool first)
{
    constexpr int RM = M / 16, RN = N / 16;
    float *K = sp_shared<float>(), *V = K + N * TILE_LD<D>, *Q = V + N * TILE_LD<D>;
    float *dO = Q + M * TILE_LD<D>, *P = dO + M * TILE_LD<D>, *dS = P + M * SCORE_LD<N>;
    int all = a.batch * a.kv_heads, b = (int)blockIdx.x % all / a.kv_heads;
    int kv_head = (int)blockIdx.x % a.kv_heads, group = a.heads / a.kv_heads;
    int to_v = a.kv_heads * a.d;
    int pos = kv.begin + (int)blockIdx.x / all * N, end = kv.end[kv.n - 1], slice = 0;
    int row0 = pos > a.q_pos ? (pos - a.q_pos) / M * M : 0; /* of the first query that may see it */
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    float dk[RN][D / 16], dv[RN][D / 16];

    for (int j = 0; j < RN; j++)
        for (int c = 0; c < D / 16; c++)
            dk[j][c] = dv[j][c] = 0;
    while (pos >= kv.end[slice])
        slice++;
    if (pos < a.seen) {
        /* Keys that nobody sees may hold anything. */
        tile_keys<T, D, N>(K, kv, a, b, kv_head, pos, end < a.seen ? end : a.seen, slice, 0);
        tile_keys<T, D, N>(V, kv, a, b, kv_head, pos, end < a.seen ? end : a.seen, slice, to_v);
    } else {
        row0 = a.q_len;
    }
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        size_t of_head = attention_row(a, b, 0, head);

        for (int row = row0; row < a.q_len; row += M) {
            int rows = a.q_len - row < M ? a.q_len - row : M;
            float p[RM][RN], dp[RM][RN];

            __syncthreads(); /* the last tile was read */
            tile_queries<D, M>(Q, a, b, head, row, rows, q);
            tile_queries<D, M>(dO, a, b, head, row, rows, d_o);
            __syncthreads();
            tile_dot<D, RM, RN>(Q, K, a.d, p);
            tile_dot<D, RM, RN>(dO, V, a.d, dp);
            scores<T, RM, RN>(a, row, rows, pos, lse + of_head, means + of_head, p, dp);
            for (int i = 0; i < RM; i++)
                for (int j = 0; j < RN; j++) {
                    P[(ty * RM + i) * SCORE_LD<N> + tx + 16 * j] = p[i][j];
                    dS[(ty * RM + i) * SCORE_LD<N> + tx + 16 * j] = dp[i][j];
                }
            __syncthreads();
            tile_mix<D, RN>(P, 1, SCORE_LD<N>, dO, M, dv);
            tile_mix<D, RN>(dS, 1, SCORE_LD<N>, Q, M, dk);
        }
    }
    for (int j = 0; j < RN; j++) {
        int key = pos + ty * RN + j;
        T *to;

        if (key >= end || (key >= a.seen && !first))
            continue;
        to = attention_key<T>(dkv, a, b, kv_head, key, slice);
        dkv_put<T, D>(to, a, to_v, dk[j], dv[j], first);
    }
}

/* A tile of M queries; N keys at a time. */
template <typename T, int D, int M, int N>
SP_KERNEL void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_dq_kernel(const __grid_constant__ struct attention_shape a,
                        const __grid_constant__ struct attention_slices<ATTENTION_SLICES> kv,
                        const T *q, const T *d_o, const float *lse, const float *means, T *dq)
{
    constexpr int RM = M / 16, RN = N / 16;
    float *Q = sp_shared<float>(), *dO = Q + M * TILE_LD<D>, *K = dO + M * TILE_LD<D>;
    float *V = K + N * TILE_LD<D>, *dS = V + N * TILE_LD<D>;
    struct query_tile t = query_tile_of<M>(a);
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, slice = 0;
    size_t of_head = attention_row(a, t.b, 0, t.head);
    float sum[RM][D / 16];

    for (int i = 0; i < RM; i++)
        for (int c = 0; c < D / 16; c++)
            sum[i][c] = 0;
    tile_queries<D, M>(Q, a, t.b, t.head, t.row, t.rows, q);
    tile_queries<D, M>(dO, a, t.b, t.head, t.row, t.rows, d_o);
    for (int pos = 0; pos < t.end; pos += N) {
        float p[RM][RN], dp[RM][RN];

        while (pos >= kv.end[slice])
            slice++;
        __syncthreads(); /* the last tile was read */
        tile_keys<T, D, N>(K, kv, a, t.b, t.kv_head, pos, t.end, slice, 0);
        tile_keys<T, D, N>(V, kv, a, t.b, t.kv_head, pos, t.end, slice, a.kv_heads * a.d);
        __syncthreads();
        tile_dot<D, RM, RN>(Q, K, a.d, p);
        tile_dot<D, RM, RN>(dO, V, a.d, dp);
        scores<T, RM, RN>(a, t.row, t.rows, pos, lse + of_head, means + of_head, p, dp);
        for (int i = 0; i < RM; i++)
            for (int j = 0; j < RN; j++)
                dS[(ty * RM + i) * SCORE_LD<N> + tx + 16 * j] = dp[i][j];
        __syncthreads();
        tile_mix<D, RM>(dS, SCORE_LD<N>, 1, K, N, sum);
    }
    for (int i = 0; i < RM && ty * RM + i < t.rows; i++)
        for (int c = 0; c < D / 16; c++)
            if (tile_column(c) < a.d)
                sp_put(dq + attention_query(a, t.b, t.row + ty * RM + i, t.head) + tile_column(c),
                       sum[i][c] * a.scale);
}

template <typename T, int D, int M, int N> static void dkv_launch(const struct attention_grads &w)
{
    size_t floats = (size_t)2 * (M + N) * TILE_LD<D> + (size_t)2 * M * SCORE_LD<N>;

    attention_each_chunk(w, N, [&](const auto &kv, const auto &dkv, size_t tiles) {
        sp_launch(w.k, "attention_dkv", attention_dkv_kernel<T, D, M, N>,
                  (unsigned)(tiles * (size_t)w.a.batch * (size_t)w.a.kv_heads), ATTENTION_THREADS,
                  floats * sizeof(float), w.a, kv, dkv, (const T *)w.q, (const T *)w.d_o, w.lse,
                  w.means, w.first);
    });
}

template <typename T, int D, int M, int N> static void dq_launch(const struct attention_grads &w)
{
    size_t floats = (size_t)2 * (M + N) * TILE_LD<D> + (size_t)M * SCORE_LD<N>;
    size_t blocks = (size_t)sp_blocks((size_t)w.a.q_len, M) * (size_t)w.a.batch;
    struct attention_slices<ATTENTION_SLICES> kv;

    attention_take(w.at, 0, w.at->n_kv, 0, w.kv, &kv);
    sp_launch(w.k, "attention_dq", attention_dq_kernel<T, D, M, N>,
              (unsigned)(blocks * (size_t)w.a.heads), ATTENTION_THREADS, floats * sizeof(float),
              w.a, kv, (const T *)w.q, (const T *)w.d_o, w.lse, w.means, (T *)w.dq);
}

template <typename T> static float *means_launch(const struct attention_grads &w, const void *o)
{
    size_t units = (size_t)w.a.batch * (size_t)w.a.q_len * (size_t)w.a.heads;
    int accesses = w.a.d / (w.a.wide ? (int)sp_wide<T>::N : 1), lanes = 1;
    float *means = (float *)sp_cuda_workspace(w.k, units * sizeof *means);

    while (lanes < accesses && lanes < SP_WARP)
        lanes *= 2;
    sp_launch(w.k, "attention_means",
              w.a.wide ? attention_means_kernel<T, sp_wide<T>::N> : attention_means_kernel<T, 1>,
              sp_blocks(units * (size_t)lanes, SP_BLOCK), SP_BLOCK, 0, w.a, lanes, (const T *)o,
              (const T *)w.d_o, means);
    return means;
}

template <typename T>
static void attention_bwd(const struct sp_backend *k, const struct sp_attention *at,
                          const struct sp_attention_bwd *b)
{
    const void *const rows[] = {b->q, b->o, b->d_o, b->dq};
    struct attention_grads w = {};

    w.k = k;
    w.at = at;
    w.a = attention_shape_of<T>(at, b->kv, (const void *const *)b->dkv, rows, 4);
    w.q = b->q;
    w.d_o = b->d_o;
    w.lse = b->lse;
    w.kv = b->kv;
    w.dkv = b->dkv;
    w.dq = b->dq;
    w.first = b->first;
    w.means = means_launch<T>(w, b->o);
    if (k->dtype == SP_BF16 && attention_mma_can(&w.a)) {
        sp_cuda_attention_mma_bwd(&w);
    } else if (at->head_dim <= 64) {
        dkv_launch<T, 64, 32, 64>(w);
        dq_launch<T, 64, 64, 32>(w);
    } else if (at->head_dim <= 128) {
        dkv_launch<T, 128, 32, 32>(w);
        dq_launch<T, 128, 32, 32>(w);
    } else {
        dkv_launch<T, 256, 16, 16>(w);
        dq_launch<T, 256, 16, 16>(w);
    }
}

extern "C" void sp_cuda_attention_bwd_fill(struct sp_backend *backend)
{
    backend->attention_bwd = backend->dtype == SP_BF16 ? attention_bwd<bf16> : attention_bwd<float>;
}
