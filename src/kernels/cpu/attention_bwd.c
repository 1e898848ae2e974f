/*
 * Causal attention, backward. Forward was S = scale Q K^T, P = e^(S - lse), O = P V, so, with
 * D = rowsum(dO o O):
 *
 *   dV += P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ = scale dS K,  dK += scale dS^T Q
 *
 * A unit of work is one tile of keys of one key/value head, which owns its rows of dK and dV and
 * meets every later tile of queries. A tile of queries receives dQ from all its key tiles in the
 * order of the keys: its ticket counts those that have added theirs, and a unit waits for its
 * turn. The sums have one order, whatever the team. Units are taken in the order of the keys, so
 * the one waited for has always been taken, and it waits for earlier ones only: no deadlock. All
 * heads of a tile come before the next tile, so with as many heads as threads nobody waits.
 */
#include "kernels/cpu/tile.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <sched.h>
#include <stdatomic.h>

struct bwd {
    const struct sp_attention *at;
    const float *q;
    const float *const *kv;
    const float *o, *lse, *d_o;
    float *dq;
    float *const *dkv;
    float *D;            /* (batch, a, q_len) */
    atomic_int *tickets; /* (batch, a, query tiles) */
    atomic_int next;     /* unit to take */
};

SP_CLONES static float dot(int n, const float *a, const float *b)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

/* S(rows,cols) := P and dP := dS; row i sees the first `visible + i` columns. */
SP_CLONES static void score_tile(int rows, int cols, int visible, const float *lse, const float *D,
                                 float *S, float *dP)
{
    for (int i = 0; i < rows; i++) {
        float *s = S + (size_t)i * (size_t)cols, *g = dP + (size_t)i * (size_t)cols;
        float shift = lse[i], mean = D[i];
        int n = visible + i < cols ? visible + i : cols;

        n = n > 0 ? n : 0;
#pragma omp simd
        for (int j = 0; j < n; j++) {
            float p = sp_exp_softmax(s[j] - shift);

            s[j] = p;
            g[j] = p * (g[j] - mean);
        }
        for (int j = n; j < cols; j++)
            s[j] = g[j] = 0;
    }
}

static void wait_for(atomic_int *ticket, int turn)
{
    for (int spins = 0; atomic_load_explicit(ticket, memory_order_acquire) != turn; spins++)
        if (spins > 1000)
            sched_yield();
}

/* One tile of queries against tile number `turn` of keys. */
static void meet(struct bwd *w, const struct sp_key_tile *k, int turn, int b, int head, int tile,
                 float *S, float *dP)
{
    const struct sp_attention *at = w->at;
    int d = at->head_dim, ldq = at->heads * d, ldkv = 2 * at->kv_heads * d;
    int kv_head = head / (at->heads / at->kv_heads), row = tile * SP_Q_TILE;
    int rows = at->q_len - row < SP_Q_TILE ? at->q_len - row : SP_Q_TILE;
    int pos = at->q_pos + row, n = pos + rows - k->pos < k->n ? pos + rows - k->pos : k->n;
    size_t bh = (size_t)b * (size_t)at->heads + (size_t)head;
    size_t at_q = sp_query_offset(at, b, head, row), at_k = sp_key_offset(at, k, b, kv_head);
    size_t to_v = (size_t)at->kv_heads * (size_t)d, at_row = bh * (size_t)at->q_len + (size_t)row;
    const float *Q = w->q + at_q, *dO = w->d_o + at_q, *K = w->kv[k->slice] + at_k;
    float *dK = w->dkv[k->slice] + at_k;
    atomic_int *ticket = w->tickets + bh * (size_t)sp_query_tiles(at) + tile;

    sp_gemm(false, true, rows, n, d, at->scale, Q, ldq, K, ldkv, 0, S, n);
    sp_gemm(false, true, rows, n, d, 1, dO, ldq, K + to_v, ldkv, 0, dP, n);
    score_tile(rows, n, pos + 1 - k->pos, w->lse + at_row, w->D + at_row, S, dP);
    sp_gemm(true, false, n, d, rows, 1, S, n, dO, ldq, 1, dK + to_v, ldkv);
    sp_gemm(true, false, n, d, rows, at->scale, dP, n, Q, ldq, 1, dK, ldkv);
    wait_for(ticket, turn);
    sp_gemm(false, false, rows, d, n, at->scale, dP, n, K, ldkv, turn ? 1 : 0, w->dq + at_q, ldq);
    atomic_store_explicit(ticket, turn + 1, memory_order_release);
}

/* Unit u: key tile u / (batch g), the thread's tile `k` having been number *turn before. */
static bool unit(struct bwd *w, int u, struct sp_key_tile *k, int *turn, float *S, float *dP)
{
    const struct sp_attention *at = w->at;
    int units = at->batch * at->kv_heads, group = at->heads / at->kv_heads;
    int b = u % units / at->kv_heads, kv_head = u % at->kv_heads, first;

    for (; *turn < u / units; ++*turn)
        if (!sp_key_tile_next(at, at->q_pos + at->q_len, k))
            return false;
    first = k->pos > at->q_pos ? (k->pos - at->q_pos) / SP_Q_TILE : 0;
    for (int i = 0; i < group; i++)
        for (int tile = first; tile < sp_query_tiles(at); tile++)
            meet(w, k, *turn, b, kv_head * group + i, tile, S, dP);
    return true;
}

void sp_attention_bwd(const struct sp_attention *at, const float *q, const float *const *kv,
                      const float *o, const float *lse, const float *d_o, float *dq,
                      float *const *dkv)
{
    size_t rows = (size_t)at->batch * (size_t)at->heads * (size_t)at->q_len;
    size_t tickets = (size_t)at->batch * (size_t)at->heads * (size_t)sp_query_tiles(at);
    struct bwd w = {
        .at = at, .q = q, .kv = kv, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dkv = dkv};

    w.D = sp_scratch(SP_SCRATCH_TEAM, rows * sizeof *w.D + tickets * sizeof *w.tickets);
    w.tickets = (atomic_int *)(w.D + rows);
    atomic_init(&w.next, 0);
#pragma omp parallel
    {
        size_t tile = (size_t)SP_Q_TILE * SP_K_TILE;
        float *S = sp_scratch(SP_SCRATCH_OWN, 2 * tile * sizeof *S), *dP = S + tile;
        struct sp_key_tile k = SP_KEY_TILE_START;
        int turn = -1;

#pragma omp for nowait
        for (size_t i = 0; i < tickets; i++)
            atomic_init(w.tickets + i, 0);
#pragma omp for
        for (size_t r = 0; r < rows; r++) {
            size_t bh = r / (size_t)at->q_len, row = r % (size_t)at->q_len;
            size_t from = sp_query_offset(at, (int)(bh / (size_t)at->heads),
                                          (int)(bh % (size_t)at->heads), (int)row);

            w.D[r] = dot(at->head_dim, o + from, d_o + from);
        }
        while (unit(&w, atomic_fetch_add(&w.next, 1), &k, &turn, S, dP))
            ;
    }
}
