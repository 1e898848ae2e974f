/*
 * Causal attention, backward. Forward was S = scale Q K^T, P = e^(S - lse), O = P V, so, with
 * D = rowsum(dO o O):
 *
 *   dV += P^T dO,  dP = dO V^T,  dS = P o (dP - D),  dQ = scale dS K,  dK += scale dS^T Q
 *
 * A unit of work is one tile of keys of one key/value head. It owns its rows of dK and dV, goes
 * through every later tile of queries, sums in f32 and writes once. All scores are transposed, as in
 * the forward.
 *
 * A tile of queries receives dQ from all its key tiles in the order of the keys: its ticket counts
 * the key tiles that have added theirs, and a unit waits for its turn. The sums have one order,
 * whatever the team. Units are taken in the order of the keys, so a unit that others wait for was
 * always taken before, and it waits only for earlier ones: no deadlock. All heads of a tile come
 * before the next tile, so with as many heads as threads no thread waits.
 */
#include "kernels/cpu/attention/attention_bwd.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <sched.h>
#include <string.h>

SP_CLONES static float dot(int n, const float *a, const float *b)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

/* x(n), as f32; in `room` unless it is. */
SP_CLONES static const float *widened(enum sp_dtype type, int n, const void *x, float *room)
{
    const uint16_t *from = x;

    if (type == SP_F32)
        return x;
#pragma omp simd
    for (int i = 0; i < n; i++)
        room[i] = sp_bf16_value(from[i]);
    return room;
}

/* D of one row of queries, all heads; room for 2 a d floats. */
static void dots(const struct bwd *w, int row, float *room)
{
    const struct sp_attention *at = w->at;
    size_t width = (size_t)at->heads * (size_t)at->head_dim, q_len = (size_t)at->q_len;
    size_t b = (size_t)row / q_len, t = (size_t)row % q_len;
    const float *o =
        widened(w->type, (int)width, sp_element(w->type, w->o, (size_t)row * width), room);
    const float *d_o = widened(w->type, (int)width,
                               sp_element(w->type, w->d_o, (size_t)row * width), room + width);

    for (int i = 0; i < at->heads; i++)
        w->mean[(b * (size_t)at->heads + (size_t)i) * q_len + t] =
            dot(at->head_dim, o + i * at->head_dim, d_o + i * at->head_dim);
}

static void wait_for(atomic_int *ticket, int turn)
{
    for (int spins = 0; atomic_load_explicit(ticket, memory_order_acquire) != turn; spins++)
        if (spins > 1000)
            sched_yield();
}

/* The unit's share of dQ of one tile; `last`: none comes after it. */
static void add_queries(const struct bwd *w, const struct bwd_scratch *s, int turn, bool last,
                        const struct bwd_tile *t)
{
    const struct sp_attention *at = w->at;
    size_t width = (size_t)at->heads * (size_t)at->head_dim;
    atomic_int *ticket =
        w->tickets + t->bh * (size_t)sp_query_tiles(at) + (size_t)(t->row / SP_Q_TILE);
    void *dq = (char *)w->dq + t->at_q * sp_dtype_bytes(w->type);
    float *sum = w->sums
                     ? w->sums + (t->bh * (size_t)at->q_len + (size_t)t->row) * (size_t)at->head_dim
                     : dq;
    size_t ld = w->sums ? (size_t)at->head_dim : width;

    wait_for(ticket, turn);
    if (turn == 0 && last) {
        w->path->store(&(struct sp_tile_store){.type = w->type,
                                               .rows = t->rows,
                                               .d = at->head_dim,
                                               .x = s->dq,
                                               .ldx = w->ldd,
                                               .scale = at->scale,
                                               .y = dq,
                                               .ld = width});
    } else {
        w->path->store(&(struct sp_tile_store){.type = SP_F32,
                                               .rows = t->rows,
                                               .d = at->head_dim,
                                               .x = s->dq,
                                               .ldx = w->ldd,
                                               .scale = at->scale,
                                               .add = turn > 0,
                                               .y = sum,
                                               .ld = ld});
        if (last && w->sums)
            w->path->store(&(struct sp_tile_store){.type = w->type,
                                                   .rows = t->rows,
                                                   .d = at->head_dim,
                                                   .x = sum,
                                                   .ldx = at->head_dim,
                                                   .scale = 1,
                                                   .y = dq,
                                                   .ld = width});
    }
    atomic_store_explicit(ticket, turn + 1, memory_order_release);
}

/* Unit u: key tile u / (batch g), the thread's tile `k` having been number *turn before. */
static bool unit(struct bwd *w, struct bwd_scratch *s, int u, struct sp_key_tile *k, int *turn)
{
    const struct sp_attention *at = w->at;
    int units = at->batch * at->kv_heads, group = at->heads / at->kv_heads;
    int b = u % units / at->kv_heads, kv_head = u % at->kv_heads, first;

    for (; *turn < u / units; ++*turn)
        if (!sp_key_tile_next(at, w->seen, k))
            return false;
    first = k->pos > at->q_pos ? (k->pos - at->q_pos) / SP_Q_TILE : 0;
    sp_bwd_load_keys(w, s, k, b, kv_head);
    for (int i = 0; i < group; i++)
        for (int tile = first; tile < sp_query_tiles(at); tile++) {
            struct bwd_tile t;
            int end;

            sp_bwd_load_queries(w, s, &t, b, kv_head * group + i, tile * SP_Q_TILE);
            sp_bwd_meet(w, s, &t, k);
            end = at->q_pos + t.row + t.rows;
            add_queries(w, s, *turn, k->pos + k->n >= (end < w->seen ? end : w->seen), &t);
        }
    sp_bwd_store_keys(w, s, k, b, kv_head);
    return true;
}

/* Keys that no query sees have no gradient: 0, where dkv is written and not added to. */
static void clear_unseen(const struct bwd *w)
{
    const struct sp_attention *at = w->at;
    int seen = w->seen;
    size_t row = 2 * (size_t)at->kv_heads * (size_t)at->head_dim * sp_dtype_bytes(w->type);

    for (int j = 0; j < at->n_kv; seen -= at->kv_len[j++]) {
        int len = at->kv_len[j], from = seen < 0 ? 0 : seen;

        for (int b = 0; b < at->batch && from < len; b++)
            memset((char *)w->dkv[j] + row * (size_t)(b * len + from), 0,
                   row * (size_t)(len - from));
    }
}

static int seen_keys(const struct sp_attention *at)
{
    int seen = at->q_pos + at->q_len, keys = 0;

    for (int j = 0; j < at->n_kv; j++)
        keys += at->kv_len[j];
    return seen < keys ? seen : keys;
}

/* Several key tiles add to one dq: in f32 they add in place, else in `sums`. */
static void shared_scratch(struct bwd *w)
{
    const struct sp_attention *at = w->at;
    size_t rows = (size_t)at->batch * (size_t)at->heads * (size_t)at->q_len;
    size_t tickets = (size_t)at->batch * (size_t)at->heads * (size_t)sp_query_tiles(at);
    bool sums = w->type != SP_F32 && (at->n_kv > 1 || w->seen > w->keys);
    size_t n_sums = sums ? rows * (size_t)at->head_dim : 0;

    w->mean = sp_scratch(SP_SCRATCH_TEAM,
                         (rows + n_sums) * sizeof *w->mean + tickets * sizeof *w->tickets);
    w->sums = sums ? w->mean + rows : NULL;
    w->tickets = (atomic_int *)(void *)(w->mean + rows + n_sums);
    for (size_t i = 0; i < tickets; i++)
        atomic_init(w->tickets + i, 0);
    atomic_init(&w->next, 0);
}

void sp_cpu_attention_bwd(enum sp_dtype type, const struct sp_attention *at,
                          const struct sp_attention_bwd *b)
{
    struct bwd w = {.at = at,
                    .path = sp_attention_path(type),
                    .type = type,
                    .q = b->q,
                    .kv = b->kv,
                    .o = b->o,
                    .lse = b->lse,
                    .d_o = b->d_o,
                    .dq = b->dq,
                    .dkv = b->dkv,
                    .first = b->first};

    w.seen = seen_keys(at);
    sp_bwd_sizes(&w);
    shared_scratch(&w);
    if (b->first)
        clear_unseen(&w);
#pragma omp parallel
    {
        struct sp_key_tile k = SP_KEY_TILE_START;
        struct bwd_scratch s;
        int turn = -1;

        sp_bwd_scratch_cut(&w, &s);
#pragma omp for
        for (int row = 0; row < at->batch * at->q_len; row++)
            dots(&w, row, s.row);
        while (unit(&w, &s, atomic_fetch_add(&w.next, 1), &k, &turn))
            ;
    }
}

void sp_attention_bwd(const struct sp_attention *at, const struct sp_attention_bwd *b)
{
    sp_cpu_attention_bwd(SP_F32, at, b);
}
