/*
 * Causal attention, forward: a block has a tile of queries of one head, and meets the tiles of keys
 * they see in order. S = scale Q K^T, m' = max(m, rowmax S), P = e^(S - m'):
 *
 *   l = l e^(m - m') + rowsum P,  O = O e^(m - m') + P V,  at the end  O = O / l,  lse = m + log l
 *
 * Arithmetic is in f32 on tiles in shared memory; O stays in registers.
 */
#include "kernels/cuda/attention/attention_tile.h"

/* Tiles of M queries and N keys; K and V take turns in one place. */
template <typename T, int D, int M, int N>
SP_KERNEL void __launch_bounds__(ATTENTION_THREADS, 2)
    attention_kernel(const __grid_constant__ struct attention_shape a,
                     const __grid_constant__ struct attention_slices<ATTENTION_SLICES> kv,
                     const T *q, T *o, float *lse)
{
    constexpr int RM = M / 16, RN = N / 16, LDP = N + 4;
    float *Q = sp_shared<float>(), *K = Q + M * TILE_LD<D>, *P = K + N * TILE_LD<D>;
    int all = a.batch * a.heads, b = (int)blockIdx.x % all / a.heads;
    int head = (int)blockIdx.x % a.heads, kv_head = head / (a.heads / a.kv_heads);
    /* The last tiles see the most keys: longest first. */
    int row = (a.q_len - 1) / M * M - (int)blockIdx.x / all * M;
    int rows = a.q_len - row < M ? a.q_len - row : M, first = a.q_pos + row;
    int end = first + rows < a.seen ? first + rows : a.seen, slice = 0;
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    float max[RM], sum[RM], out[RM][D / 16];

    for (int i = 0; i < RM; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
        for (int c = 0; c < D / 16; c++)
            out[i][c] = 0;
    }
    tile_queries<D, M>(Q, a, b, head, row, rows, q);
    for (int pos = 0; pos < end; pos += N) {
        float s[RM][RN];

        while (pos >= kv.end[slice])
            slice++;
        __syncthreads(); /* V was read */
        tile_keys<T, D, N>(K, kv, a, b, kv_head, pos, end, slice, 0);
        __syncthreads();
        tile_dot<D, RM, RN>(Q, K, a.d, s);
        for (int i = 0; i < RM; i++) {
            int visible = first + ty * RM + i + 1 < end ? first + ty * RM + i + 1 : end;
            float now = max[i], correction;

            for (int j = 0; j < RN; j++) {
                s[i][j] = pos + tx + 16 * j < visible ? s[i][j] * a.scale : -INFINITY;
                now = fmaxf(now, s[i][j]);
            }
            now = sp_lanes_max(now, 16);
            correction = sp_exp<T>(max[i] - now);
            max[i] = now;
            sum[i] *= correction;
            for (int c = 0; c < D / 16; c++)
                out[i][c] *= correction;
            for (int j = 0; j < RN; j++) {
                float p = sp_exp<T>(s[i][j] - now);

                sum[i] += p;
                P[(ty * RM + i) * LDP + tx + 16 * j] = p;
            }
        }
        __syncthreads(); /* K was read, P is written */
        tile_keys<T, D, N>(K, kv, a, b, kv_head, pos, end, slice, a.kv_heads * a.d);
        __syncthreads();
        tile_mix<D, RM>(P, LDP, 1, K, N, out);
    }
    for (int i = 0; i < RM; i++) {
        int r = ty * RM + i;
        float total = sp_lanes_sum(sum[i], 16), inverse = 1.0f / total;

        if (r >= rows)
            continue;
        if (tx == 0)
            lse[((size_t)b * (size_t)a.heads + (size_t)head) * (size_t)a.q_len +
                (size_t)(row + r)] = max[i] + logf(total);
        for (int c = 0; c < D / 16; c++)
            if (tile_column(c) < a.d)
                sp_put(o + attention_query(a, b, row + r, head) + tile_column(c),
                       out[i][c] * inverse);
    }
}

template <typename T, int D, int M, int N>
static void attention_launch(const struct sp_backend *k, const struct attention_shape &a,
                             const struct attention_slices<ATTENTION_SLICES> &s, const void *q,
                             void *o, float *lse)
{
    size_t floats = (size_t)(M + N) * TILE_LD<D> + (size_t)M * (N + 4);
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
    sp_cuda_rope_fill(backend);
}
