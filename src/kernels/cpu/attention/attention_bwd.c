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
 * the key tiles that have added to it, and a unit waits for its turn. The sums have one order,
 * whatever the team. Units are taken in the order of the keys, so a unit that others wait for was
 * always taken before, and it waits only for earlier ones: no deadlock. All heads of a tile come
 * before the next tile, so with as many heads as threads no thread waits.
 */
#include "kernels/cpu/attention/tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

struct bwd {
    struct sp_tiling by;
    const struct sp_attention_bwd *arrays;
    int seen;            /* keys that some query sees */
    float *mean;         /* D(batch, a, q_len) */
    float *sums;         /* dq(batch, a, q_len, d) where the type is not f32, or NULL */
    atomic_int *tickets; /* (batch, a, query tiles) */
    atomic_int next;     /* unit to take */
};

/* A tile of queries. */
struct bwd_tile {
    int row, rows, columns;
    size_t bh, at_q; /* b a + head; offset of its first row in q */
    float lse[SP_Q_TILE], mean[SP_Q_TILE];
};

/* Tiles; in words along d but where `across` says along the rows: with pair 1 that is the same. */
struct bwd_scratch {
    float *row;                               /* 2 a d */
    uint32_t *k, *v, *k_across;               /* (keys,ldw), (keys,ldw), (keys/pair,ldd) */
    float *dk, *dv;                           /* (keys,ldd) */
    uint32_t *q, *d_o, *q_across, *do_across; /* (Q_TILE,ldw) twice, (Q_TILE/pair,ldd) twice */
    uint32_t *qt, *dot;                       /* (words,Q_TILE) */
    float *s, *dp, *dq;                       /* (keys,Q_TILE) twice, (Q_TILE,ldd) */
    uint32_t *p, *ds, *ds_across;             /* as the path's `gradient` leaves them */
};

/* ---- tiles: loaded, multiplied, stored ---- */

/* The calling thread's scratch. */
static void cut_scratch(const struct bwd *w, struct bwd_scratch *s)
{
    size_t pair = (size_t)w->by.path->pair, keys = (size_t)w->by.keys;
    size_t ldw = (size_t)w->by.ldw, ldd = (size_t)w->by.ldd, scores = keys * SP_Q_TILE;
    size_t row = 2 * (size_t)sp_up(w->by.at->heads * w->by.at->head_dim, 16);
    size_t words = row + keys * (2 * ldw + 3 * ldd) + SP_Q_TILE * (4 * ldw + 3 * ldd) + 5 * scores;
    uint32_t *p = sp_scratch(SP_SCRATCH_OWN, words * sizeof *p);

    s->row = (float *)(void *)p, p += row;
    s->k = p, p += keys * ldw;
    s->v = p, p += keys * ldw;
    s->dk = (float *)(void *)p, p += keys * ldd;
    s->dv = (float *)(void *)p, p += keys * ldd;
    s->q = p, p += SP_Q_TILE * ldw;
    s->d_o = p, p += SP_Q_TILE * ldw;
    s->qt = p, p += SP_Q_TILE * ldw;
    s->dot = p, p += SP_Q_TILE * ldw;
    s->dq = (float *)(void *)p, p += SP_Q_TILE * ldd;
    s->s = (float *)(void *)p, p += scores;
    s->dp = (float *)(void *)p, p += scores;
    if (pair == 1) {
        s->k_across = s->k, s->q_across = s->q, s->do_across = s->d_o;
        s->p = (uint32_t *)(void *)s->s, s->ds = s->ds_across = (uint32_t *)(void *)s->dp;
        return;
    }
    s->k_across = p, p += keys / pair * ldd;
    s->q_across = p, p += SP_Q_TILE / pair * ldd;
    s->do_across = p, p += SP_Q_TILE / pair * ldd;
    s->p = p, p += scores / pair;
    s->ds = p, p += scores / pair;
    s->ds_across = p;
}

/* Loads K and V of a unit; dk, dv = 0. */
static void load_keys(const struct bwd *w, struct bwd_scratch *s, const struct sp_key_tile *k,
                      int b, int kv_head)
{
    const struct sp_attention *at = w->by.at;
    const struct sp_attention_path *path = w->by.path;
    size_t from = sp_key_offset(at, k, b, kv_head);
    size_t to_v = (size_t)at->kv_heads * (size_t)at->head_dim;
    struct sp_tile_pack keys = {.rows = k->n,
                                .all = sp_up(k->n, path->pair),
                                .x = sp_from(w->by.type, w->arrays->kv[k->slice], from),
                                .ld = 2 * to_v,
                                .tile = s->k};
    struct sp_tile_pack values = keys;

    values.x = sp_from(w->by.type, w->arrays->kv[k->slice], from + to_v);
    values.tile = s->v;
    sp_tile_load(&w->by, keys);
    sp_tile_load(&w->by, values);
    if (path->pair > 1)
        path->interleave(k->n, s->k, w->by.ldw, s->k_across, w->by.ldd);
    memset(s->dk, 0, sizeof *s->dk * (size_t)k->n * (size_t)w->by.ldd);
    memset(s->dv, 0, sizeof *s->dv * (size_t)k->n * (size_t)w->by.ldd);
}

/* One of q and d_o, in the three forms in which the products read it. */
static void load_rows(const struct bwd *w, const struct bwd_tile *t, const void *x, uint32_t *rows,
                      uint32_t *across, uint32_t *transposed)
{
    const struct sp_attention *at = w->by.at;
    const struct sp_attention_path *path = w->by.path;

    sp_tile_load(&w->by, (struct sp_tile_pack){.rows = t->rows,
                                               .all = t->columns,
                                               .x = sp_from(w->by.type, x, t->at_q),
                                               .ld = (size_t)at->heads * (size_t)at->head_dim,
                                               .tile = rows});
    path->transpose(t->columns, sp_up(w->by.words, 4), rows, w->by.ldw, transposed);
    if (path->pair > 1)
        path->interleave(t->rows, rows, w->by.ldw, across, w->by.ldd);
}

static void load_queries(const struct bwd *w, struct bwd_scratch *s, struct bwd_tile *t, int b,
                         int head, int row)
{
    const struct sp_attention *at = w->by.at;
    size_t from;

    t->row = row;
    t->rows = at->q_len - row < SP_Q_TILE ? at->q_len - row : SP_Q_TILE;
    t->columns = sp_up(t->rows, w->by.path->lanes * w->by.path->pair);
    t->bh = (size_t)b * (size_t)at->heads + (size_t)head;
    t->at_q = sp_query_offset(at, b, head, row);
    load_rows(w, t, w->arrays->q, s->q, s->q_across, s->qt);
    load_rows(w, t, w->arrays->d_o, s->d_o, s->do_across, s->dot);
    from = t->bh * (size_t)at->q_len + (size_t)row;
    for (int i = 0; i < t->columns; i++) {
        t->lse[i] = i < t->rows ? w->arrays->lse[from + (size_t)i] : INFINITY;
        t->mean[i] = i < t->rows ? w->mean[from + (size_t)i] : 0;
    }
}

/* dk, dv +=, dq = (without its scale). */
static void multiply_tiles(const struct bwd *w, const struct bwd_scratch *s,
                           const struct bwd_tile *t, const struct sp_key_tile *k)
{
    const struct sp_attention_path *path = w->by.path;
    int diag = w->by.at->q_pos + t->row - k->pos;
    /* Rows of dK and dV that a product adds to besides: nobody here sees these keys, P and dS are 0; or it has no more. */
    int seen = sp_up(t->rows + diag, path->rows), keys = seen < k->n ? seen : k->n;
    int pair = path->pair;
    size_t ldw = (size_t)w->by.ldw, ldd = (size_t)w->by.ldd;
    struct sp_product p = {.kind = SP_KEYS_QUERIES,
                           .diag = diag,
                           .rows = keys,
                           .columns = t->columns,
                           .words = w->by.words,
                           .a = s->k,
                           .a_row = ldw,
                           .a_word = 1,
                           .b = s->qt,
                           .ldb = SP_Q_TILE,
                           .c = s->s,
                           .ldc = SP_Q_TILE};
    const struct sp_gradient g = {.keys = keys,
                                  .queries = t->columns,
                                  .diag = diag,
                                  .scale = w->by.at->scale,
                                  .lse = t->lse,
                                  .mean = t->mean,
                                  .s = s->s,
                                  .dp = s->dp,
                                  .p = s->p,
                                  .ds = s->ds,
                                  .across = s->ds_across};

    path->product(&p); /* S^T = K Q^T */
    p.a = s->v, p.b = s->dot, p.c = s->dp;
    path->product(&p); /* dP^T = V dO^T */
    path->gradient(&g);
    p.kind = SP_OVER_QUERIES;
    p.columns = w->by.ldd, p.words = (t->rows + pair - 1) / pair;
    p.a = s->p, p.a_row = SP_Q_TILE / (size_t)pair;
    p.b = s->do_across, p.ldb = ldd;
    p.c = s->dv, p.ldc = ldd, p.add = true;
    path->product(&p); /* dV += P^T dO */
    p.a = s->ds, p.b = s->q_across, p.c = s->dk;
    path->product(&p); /* dK += dS^T Q */
    p.kind = SP_OVER_KEYS;
    p.rows = t->rows, p.words = (keys + pair - 1) / pair;
    p.a = s->ds_across, p.a_row = 1, p.a_word = SP_Q_TILE;
    p.b = s->k_across;
    p.c = s->dq, p.add = false;
    path->product(&p); /* dQ += dS K */
}

/* Adds dk and dv to dkv, or writes them. */
static void store_keys(const struct bwd *w, const struct bwd_scratch *s,
                       const struct sp_key_tile *k, int b, int kv_head)
{
    const struct sp_attention *at = w->by.at;
    size_t from = sp_key_offset(at, k, b, kv_head), bytes = sp_dtype_bytes(w->by.type);
    size_t to_v = (size_t)at->kv_heads * (size_t)at->head_dim;
    char *dkv = w->arrays->dkv[k->slice];

    w->by.path->store(&(struct sp_tile_store){.type = w->by.type,
                                              .rows = k->n,
                                              .d = at->head_dim,
                                              .x = s->dk,
                                              .ldx = w->by.ldd,
                                              .scale = at->scale,
                                              .add = !w->arrays->first,
                                              .y = dkv + from * bytes,
                                              .ld = 2 * to_v});
    w->by.path->store(&(struct sp_tile_store){.type = w->by.type,
                                              .rows = k->n,
                                              .d = at->head_dim,
                                              .x = s->dv,
                                              .ldx = w->by.ldd,
                                              .scale = 1,
                                              .add = !w->arrays->first,
                                              .y = dkv + (from + to_v) * bytes,
                                              .ld = 2 * to_v});
}

/* ---- units of work ---- */

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
    const struct sp_attention *at = w->by.at;
    size_t width = (size_t)at->heads * (size_t)at->head_dim, q_len = (size_t)at->q_len;
    size_t b = (size_t)row / q_len, t = (size_t)row % q_len;
    const float *o = widened(w->by.type, (int)width,
                             sp_from(w->by.type, w->arrays->o, (size_t)row * width), room);
    const float *d_o =
        widened(w->by.type, (int)width, sp_from(w->by.type, w->arrays->d_o, (size_t)row * width),
                room + width);

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
    const struct sp_attention *at = w->by.at;
    size_t width = (size_t)at->heads * (size_t)at->head_dim;
    atomic_int *ticket =
        w->tickets + t->bh * (size_t)sp_query_tiles(at) + (size_t)(t->row / SP_Q_TILE);
    void *dq = (char *)w->arrays->dq + t->at_q * sp_dtype_bytes(w->by.type);
    float *sum = w->sums
                     ? w->sums + (t->bh * (size_t)at->q_len + (size_t)t->row) * (size_t)at->head_dim
                     : dq;
    size_t ld = w->sums ? (size_t)at->head_dim : width;

    wait_for(ticket, turn);
    if (turn == 0 && last) {
        w->by.path->store(&(struct sp_tile_store){.type = w->by.type,
                                                  .rows = t->rows,
                                                  .d = at->head_dim,
                                                  .x = s->dq,
                                                  .ldx = w->by.ldd,
                                                  .scale = at->scale,
                                                  .y = dq,
                                                  .ld = width});
    } else {
        w->by.path->store(&(struct sp_tile_store){.type = SP_F32,
                                                  .rows = t->rows,
                                                  .d = at->head_dim,
                                                  .x = s->dq,
                                                  .ldx = w->by.ldd,
                                                  .scale = at->scale,
                                                  .add = turn > 0,
                                                  .y = sum,
                                                  .ld = ld});
        if (last && w->sums)
            w->by.path->store(&(struct sp_tile_store){.type = w->by.type,
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
static bool compute_unit(struct bwd *w, struct bwd_scratch *s, int u, struct sp_key_tile *k,
                         int *turn)
{
    const struct sp_attention *at = w->by.at;
    int units = at->batch * at->kv_heads, group = at->heads / at->kv_heads;
    int b = u % units / at->kv_heads, kv_head = u % at->kv_heads, first;

    for (; *turn < u / units; ++*turn)
        if (!sp_key_tile_next(at, w->seen, k))
            return false;
    first = k->pos > at->q_pos ? (k->pos - at->q_pos) / SP_Q_TILE : 0;
    load_keys(w, s, k, b, kv_head);
    for (int i = 0; i < group; i++)
        for (int tile = first; tile < sp_query_tiles(at); tile++) {
            struct bwd_tile t;
            int end;

            load_queries(w, s, &t, b, kv_head * group + i, tile * SP_Q_TILE);
            multiply_tiles(w, s, &t, k);
            end = at->q_pos + t.row + t.rows;
            add_queries(w, s, *turn, k->pos + k->n >= (end < w->seen ? end : w->seen), &t);
        }
    store_keys(w, s, k, b, kv_head);
    return true;
}

/* Keys that no query sees have no gradient: 0, where dkv is written and not added to. */
static void clear_unseen(const struct bwd *w)
{
    const struct sp_attention *at = w->by.at;
    int seen = w->seen;
    size_t row = 2 * (size_t)at->kv_heads * (size_t)at->head_dim * sp_dtype_bytes(w->by.type);

    for (int j = 0; j < at->n_kv; seen -= at->kv_len[j++]) {
        int len = at->kv_len[j], from = seen < 0 ? 0 : seen;

        for (int b = 0; b < at->batch && from < len; b++)
            memset((char *)w->arrays->dkv[j] + row * (size_t)(b * len + from), 0,
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
    const struct sp_attention *at = w->by.at;
    size_t rows = (size_t)at->batch * (size_t)at->heads * (size_t)at->q_len;
    size_t tickets = (size_t)at->batch * (size_t)at->heads * (size_t)sp_query_tiles(at);
    bool sums = w->by.type != SP_F32 && (at->n_kv > 1 || w->seen > w->by.keys);
    size_t n_sums = sums ? rows * (size_t)at->head_dim : 0;

    w->mean = sp_scratch(SP_SCRATCH_TEAM,
                         (rows + n_sums) * sizeof *w->mean + tickets * sizeof *w->tickets);
    w->sums = sums ? w->mean + rows : NULL;
    w->tickets = (atomic_int *)(void *)(w->mean + rows + n_sums);
    for (size_t i = 0; i < tickets; i++)
        atomic_init(w->tickets + i, 0);
    atomic_init(&w->next, 0);
}

void sp_cpu_attention_bwd(const struct sp_backend *k, const struct sp_attention *at,
                          const struct sp_attention_bwd *b)
{
    struct bwd w = {.by = sp_tiling_of(k->dtype, at), .arrays = b, .seen = seen_keys(at)};

    shared_scratch(&w);
    if (b->first)
        clear_unseen(&w);
#pragma omp parallel
    {
        struct sp_key_tile tile = SP_KEY_TILE_START;
        struct bwd_scratch s;
        int turn = -1;

        cut_scratch(&w, &s);
#pragma omp for
        for (int row = 0; row < at->batch * at->q_len; row++)
            dots(&w, row, s.row);
        while (compute_unit(&w, &s, atomic_fetch_add(&w.next, 1), &tile, &turn))
            ;
    }
}

void sp_attention_bwd(const struct sp_attention *at, const struct sp_attention_bwd *b)
{
    sp_cpu_attention_bwd(sp_cpu_backend(SP_F32), at, b);
}
