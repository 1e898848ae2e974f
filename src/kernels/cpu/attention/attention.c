/*
 * Causal attention, forward, a few tiles of queries of one head at a time:
 *
 *   for each tile of visible keys:  S^T = K Q^T,  m' = max(m, colmax S^T),  P^T = e^(scale (S^T - m'))
 *       l = l e^(scale (m - m')) + colsum P^T,  O = O e^(scale (m - m')) + P V
 *   O = O / l,  lse = scale m + log l
 *
 * Scores are transposed so that keys and values need not be: K is read row by row, and P^T, read
 * down its columns, is the left side of P V. Each tile of keys is copied once for all tiles of
 * queries of a unit. Tiles of queries are independent: the result depends neither on the team nor
 * on their number.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/attention/tile.h"
#include <math.h>

enum { MOST_TILES = 4 };

struct fwd {
    struct sp_tiling by;
    const void *q;
    const void *const *kv;
    void *o;
    float *lse;
    int tiles; /* of queries, in a unit */
};

/* One tile of queries, and its results so far. */
struct query_tile {
    int row, rows, columns;
    uint32_t *q; /* (words, SP_Q_TILE) */
    float *o;    /* (SP_Q_TILE, ldd) */
    float max[SP_Q_TILE], sum[SP_Q_TILE];
};

struct fwd_scratch {
    uint32_t *rows, *k, *v; /* a tile of rows as they come; K; V in words along the keys */
    float *s;
    struct query_tile tile[MOST_TILES];
};

static size_t fwd_scratch_words(const struct fwd *w)
{
    return (size_t)w->by.keys * (size_t)(2 * w->by.ldw + w->by.ldd + SP_Q_TILE) +
           (size_t)w->tiles * SP_Q_TILE * (size_t)(w->by.ldw + w->by.ldd);
}

static void fwd_scratch_cut(const struct fwd *w, struct fwd_scratch *s)
{
    uint32_t *p = sp_scratch(SP_SCRATCH_OWN, fwd_scratch_words(w) * sizeof *p);
    size_t rows = (size_t)w->by.keys * (size_t)w->by.ldw;

    s->rows = p, p += rows;
    s->k = p, p += rows;
    s->v = p, p += (size_t)w->by.keys * (size_t)w->by.ldd;
    s->s = (float *)(void *)p, p += (size_t)w->by.keys * SP_Q_TILE;
    for (int i = 0; i < w->tiles; i++) {
        s->tile[i].q = p, p += SP_Q_TILE * (size_t)w->by.ldw;
        s->tile[i].o = (float *)(void *)p, p += SP_Q_TILE * (size_t)w->by.ldd;
    }
}

static void load_queries(const struct fwd *w, struct fwd_scratch *s, struct query_tile *t, int b,
                         int head, int row)
{
    const struct sp_attention *at = w->by.at;
    const struct sp_attention_path *path = w->by.path;

    t->row = row;
    t->rows = at->q_len - row < SP_Q_TILE ? at->q_len - row : SP_Q_TILE;
    t->columns = sp_up(t->rows, path->lanes);
    sp_tile_load(&w->by, (struct sp_tile_pack){
                             .rows = t->rows,
                             .all = t->columns,
                             .x = sp_from(w->by.type, w->q, sp_query_offset(at, b, head, row)),
                             .ld = (size_t)at->heads * (size_t)at->head_dim,
                             .tile = s->rows});
    path->transpose(t->columns, sp_up(w->by.words, 4), s->rows, w->by.ldw, t->q);
}

static void load_keys(const struct fwd *w, struct fwd_scratch *s, const struct sp_key_tile *k,
                      int b, int kv_head)
{
    const struct sp_attention *at = w->by.at;
    const struct sp_attention_path *path = w->by.path;
    size_t from = sp_key_offset(at, k, b, kv_head), to_v = (size_t)at->kv_heads * at->head_dim;
    bool pairs = path->pair > 1;
    struct sp_tile_pack keys = {.rows = k->n,
                                .all = k->n,
                                .x = sp_from(w->by.type, w->kv[k->slice], from),
                                .ld = 2 * to_v,
                                .tile = s->k};
    struct sp_tile_pack values = keys;

    values.all = sp_up(k->n, path->pair);
    values.x = sp_from(w->by.type, w->kv[k->slice], from + to_v);
    values.tile = pairs ? s->rows : s->v;
    sp_tile_load(&w->by, keys);
    sp_tile_load(&w->by, values);
    if (pairs)
        path->interleave(k->n, s->rows, w->by.ldw, s->v, w->by.ldd);
}

static void multiply_tiles(const struct fwd *w, const struct fwd_scratch *s, struct query_tile *t,
                           const struct sp_key_tile *k)
{
    const struct sp_attention_path *path = w->by.path;
    int diag = w->by.at->q_pos + t->row - k->pos;
    int keys = t->rows + diag < k->n ? t->rows + diag : k->n;
    float correction[SP_Q_TILE];
    const struct sp_product scores = {.kind = SP_KEYS_QUERIES,
                                      .diag = diag,
                                      .rows = keys,
                                      .columns = t->columns,
                                      .words = w->by.words,
                                      .a = s->k,
                                      .a_row = (size_t)w->by.ldw,
                                      .a_word = 1,
                                      .b = t->q,
                                      .ldb = SP_Q_TILE,
                                      .c = s->s,
                                      .ldc = SP_Q_TILE};
    const struct sp_softmax softmax = {.keys = keys,
                                       .queries = t->rows,
                                       .diag = diag,
                                       .scale = w->by.at->scale,
                                       .first = k->pos == 0,
                                       .scores = s->s,
                                       .max = t->max,
                                       .sum = t->sum,
                                       .correction = correction};
    const struct sp_product values = {.kind = SP_OVER_KEYS,
                                      .diag = diag,
                                      .rows = t->rows,
                                      .columns = w->by.ldd,
                                      .words = (keys + path->pair - 1) / path->pair,
                                      .a = (const uint32_t *)(const void *)s->s,
                                      .a_row = 1,
                                      .a_word = SP_Q_TILE,
                                      .b = s->v,
                                      .ldb = (size_t)w->by.ldd,
                                      .c = t->o,
                                      .ldc = (size_t)w->by.ldd,
                                      .add = k->pos > 0};

    if (keys <= 0)
        return;
    path->product(&scores);
    if (path->softmax(&softmax))
        path->scale(t->rows, w->by.ldd, correction, t->o);
    path->product(&values);
}

static void finish(const struct fwd *w, struct query_tile *t, int b, int head)
{
    const struct sp_attention *at = w->by.at;
    size_t width = (size_t)at->heads * (size_t)at->head_dim;
    size_t bh = (size_t)b * (size_t)at->heads + (size_t)head;
    float *lse = w->lse + bh * (size_t)at->q_len + t->row;
    char *o = w->o;

    for (int i = 0; i < t->rows; i++) {
        lse[i] = at->scale * t->max[i] + logf(t->sum[i]);
        t->sum[i] = 1.0f / t->sum[i];
    }
    o += sp_query_offset(at, b, head, t->row) * sp_dtype_bytes(w->by.type);
    w->by.path->store(&(struct sp_tile_store){.type = w->by.type,
                                              .rows = t->rows,
                                              .d = at->head_dim,
                                              .x = t->o,
                                              .ldx = w->by.ldd,
                                              .factor = t->sum,
                                              .y = o,
                                              .ld = width});
}

/* Computes one unit: the tiles of queries of one head from tile `first` on. */
static void compute_unit(const struct fwd *w, struct fwd_scratch *s, int b, int head, int first)
{
    const struct sp_attention *at = w->by.at;
    struct sp_key_tile k = SP_KEY_TILE_START;
    int n = 0, end = 0;

    for (; n < w->tiles && (first + n) * SP_Q_TILE < at->q_len; n++) {
        load_queries(w, s, &s->tile[n], b, head, (first + n) * SP_Q_TILE);
        end = at->q_pos + s->tile[n].row + s->tile[n].rows;
    }
    while (sp_key_tile_next(at, end, &k)) {
        load_keys(w, s, &k, b, head / (at->heads / at->kv_heads));
        for (int i = 0; i < n; i++)
            multiply_tiles(w, s, &s->tile[i], &k);
    }
    for (int i = 0; i < n; i++)
        finish(w, &s->tile[i], b, head);
}

void sp_cpu_attention(const struct sp_backend *k, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse)
{
    int all = sp_query_tiles(at), all_heads = at->batch * at->heads, groups;
    struct fwd w = {.by = sp_tiling_of(k->dtype, at),
                    .q = q,
                    .kv = kv,
                    .o = o,
                    .lse = lse,
                    .tiles = MOST_TILES};

    /* Each thread needs several units, or all wait for the last ones. */
    while (w.tiles > 1 && all_heads * all < 4 * w.tiles * omp_get_max_threads())
        w.tiles /= 2;
    groups = (all + w.tiles - 1) / w.tiles;
#pragma omp parallel if (groups * all_heads > 1)
    {
        struct fwd_scratch s;

        fwd_scratch_cut(&w, &s);
        /* Goes head by head, so that its keys stay in cache. The last tiles see the most keys,
         * so they go first. */
#pragma omp for schedule(dynamic, 1)
        for (int u = 0; u < groups * all_heads; u++) {
            int bh = u / groups, group = groups - 1 - u % groups;

            compute_unit(&w, &s, bh / at->heads, bh % at->heads, group * w.tiles);
        }
    }
}

void sp_attention(const struct sp_attention *at, const float *q, const float *const *kv, float *o,
                  float *lse)
{
    sp_cpu_attention(sp_cpu_backend(SP_F32), at, q, (const void *const *)kv, o, lse);
}
