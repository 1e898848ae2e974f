/*
 * Causal attention, forward, one tile of queries of one head at a time:
 *
 *   for each tile of visible keys:  S = scale Q K^T,  m' = max(m, rowmax S),  P = e^(S - m')
 *       l = l e^(m - m') + rowsum P,  O = O e^(m - m') + P V
 *   O = O / l,  lse = m + log l
 *
 * S lives in the thread's scratch, O accumulates in place. Tiles are independent: the result does
 * not depend on the team.
 */
#include "kernels/cpu/tile.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>

struct rows {
    float max[SP_Q_TILE], sum[SP_Q_TILE];
};

/*
 * S(rows,cols) := P, and the online softmax of O(rows,d). Row i sees the first `visible + i`
 * columns; the rest becomes 0. `first`: no tile came before, O is undefined.
 */
SP_CLONES static void softmax_tile(int rows, int cols, int visible, bool first, float *S,
                                   struct rows *state, float *O, size_t ldo, int d)
{
    for (int i = 0; i < rows; i++) {
        float *s = S + (size_t)i * (size_t)cols, *o = O + (size_t)i * ldo;
        int n = visible + i < cols ? visible + i : cols;
        float max, sum = 0, correction;

        n = n > 0 ? n : 0;
        max = first ? s[0] : state->max[i];
#pragma omp simd reduction(max : max)
        for (int j = 0; j < n; j++)
            max = s[j] > max ? s[j] : max;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < n; j++) {
            s[j] = sp_exp_softmax(s[j] - max);
            sum += s[j];
        }
        for (int j = n; j < cols; j++)
            s[j] = 0;
        if (first) {
            state->sum[i] = sum;
        } else if (max != state->max[i]) {
            correction = sp_exp_softmax(state->max[i] - max);
            state->sum[i] = state->sum[i] * correction + sum;
#pragma omp simd
            for (int j = 0; j < d; j++)
                o[j] *= correction;
        } else {
            state->sum[i] += sum;
        }
        state->max[i] = max;
    }
}

SP_CLONES static void finish_tile(int rows, const struct rows *state, float *O, size_t ldo, int d,
                                  float *lse)
{
    for (int i = 0; i < rows; i++) {
        float *o = O + (size_t)i * ldo, inverse = 1.0f / state->sum[i];

#pragma omp simd
        for (int j = 0; j < d; j++)
            o[j] *= inverse;
        lse[i] = state->max[i] + logf(state->sum[i]);
    }
}

static void query_tile(const struct sp_attention *at, int b, int head, int row, const float *q,
                       const float *const *kv, float *o, float *lse, float *S)
{
    int d = at->head_dim, ldq = at->heads * d, ldkv = 2 * at->kv_heads * d;
    int kv_head = head / (at->heads / at->kv_heads);
    int rows = at->q_len - row < SP_Q_TILE ? at->q_len - row : SP_Q_TILE;
    int pos = at->q_pos + row;
    size_t at_q = sp_query_offset(at, b, head, row);
    struct sp_key_tile k = SP_KEY_TILE_START;
    struct rows state;

    while (sp_key_tile_next(at, pos + rows, &k)) {
        const float *K = kv[k.slice] + sp_key_offset(at, &k, b, kv_head);
        bool first = k.pos == 0;

        sp_gemm(false, true, rows, k.n, d, at->scale, q + at_q, ldq, K, ldkv, 0, S, k.n);
        softmax_tile(rows, k.n, pos + 1 - k.pos, first, S, &state, o + at_q, (size_t)ldq, d);
        sp_gemm(false, false, rows, d, k.n, 1, S, k.n, K + at->kv_heads * d, ldkv, first ? 0 : 1,
                o + at_q, ldq);
    }
    finish_tile(rows, &state, o + at_q, (size_t)ldq, d,
                lse + ((size_t)b * (size_t)at->heads + (size_t)head) * (size_t)at->q_len + row);
}

void sp_attention(const struct sp_attention *at, const float *q, const float *const *kv, float *o,
                  float *lse)
{
    int tiles = sp_query_tiles(at), all_heads = at->batch * at->heads;

#pragma omp parallel if (tiles * all_heads > 1)
    {
        float *S = sp_scratch(SP_SCRATCH_OWN, sizeof(float) * SP_Q_TILE * SP_K_TILE);

        /* The last tiles see the most keys: longest first. */
#pragma omp for schedule(dynamic, 1)
        for (int u = 0; u < tiles * all_heads; u++) {
            int tile = tiles - 1 - u / all_heads, bh = u % all_heads;

            query_tile(at, bh / at->heads, bh % at->heads, tile * SP_Q_TILE, q, kv, o, lse, S);
        }
    }
}
