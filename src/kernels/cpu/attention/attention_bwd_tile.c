/* The tiles of attention's backward: loaded, multiplied, stored. */
#include "kernels/cpu/attention/attention_bwd.h"
#include "kernels/cpu/team.h"
#include <math.h>
#include <string.h>

void sp_bwd_sizes(struct bwd *w)
{
    const struct sp_attention_path *path = w->path;

    w->words = (w->at->head_dim + path->pair - 1) / path->pair;
    w->ldw = sp_up(w->words, path->lanes);
    w->ldd = sp_up(w->at->head_dim, path->lanes);
    w->keys = sp_keys_of_a_tile(w->at);
}

void sp_bwd_scratch_cut(const struct bwd *w, struct bwd_scratch *s)
{
    size_t pair = (size_t)w->path->pair, keys = (size_t)w->keys;
    size_t ldw = (size_t)w->ldw, ldd = (size_t)w->ldd, scores = keys * SP_Q_TILE;
    size_t row = 2 * (size_t)sp_up(w->at->heads * w->at->head_dim, 16);
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

void sp_bwd_load_keys(const struct bwd *w, struct bwd_scratch *s, const struct sp_key_tile *k,
                      int b, int kv_head)
{
    const struct sp_attention *at = w->at;
    const struct sp_attention_path *path = w->path;
    size_t from = sp_key_offset(at, k, b, kv_head);
    size_t to_v = (size_t)at->kv_heads * (size_t)at->head_dim;
    int all = sp_up(k->n, path->pair);

    path->pack(&(struct sp_tile_pack){.type = w->type,
                                      .rows = k->n,
                                      .all = all,
                                      .d = at->head_dim,
                                      .x = sp_element(w->type, w->kv[k->slice], from),
                                      .ld = 2 * to_v,
                                      .tile = s->k,
                                      .ldt = w->ldw});
    path->pack(&(struct sp_tile_pack){.type = w->type,
                                      .rows = k->n,
                                      .all = all,
                                      .d = at->head_dim,
                                      .x = sp_element(w->type, w->kv[k->slice], from + to_v),
                                      .ld = 2 * to_v,
                                      .tile = s->v,
                                      .ldt = w->ldw});
    if (path->pair > 1)
        path->interleave(k->n, s->k, w->ldw, s->k_across, w->ldd);
    memset(s->dk, 0, sizeof *s->dk * (size_t)k->n * (size_t)w->ldd);
    memset(s->dv, 0, sizeof *s->dv * (size_t)k->n * (size_t)w->ldd);
}

/* One of q and d_o, in the three forms in which the products read it. */
static void load_rows(const struct bwd *w, const struct bwd_tile *t, const void *x, uint32_t *rows,
                      uint32_t *across, uint32_t *transposed)
{
    const struct sp_attention *at = w->at;
    const struct sp_attention_path *path = w->path;

    path->pack(&(struct sp_tile_pack){.type = w->type,
                                      .rows = t->rows,
                                      .all = t->columns,
                                      .d = at->head_dim,
                                      .x = sp_element(w->type, x, t->at_q),
                                      .ld = (size_t)at->heads * (size_t)at->head_dim,
                                      .tile = rows,
                                      .ldt = w->ldw});
    path->transpose(t->columns, sp_up(w->words, 4), rows, w->ldw, transposed);
    if (path->pair > 1)
        path->interleave(t->rows, rows, w->ldw, across, w->ldd);
}

void sp_bwd_load_queries(const struct bwd *w, struct bwd_scratch *s, struct bwd_tile *t, int b,
                         int head, int row)
{
    const struct sp_attention *at = w->at;
    size_t from;

    t->row = row;
    t->rows = at->q_len - row < SP_Q_TILE ? at->q_len - row : SP_Q_TILE;
    t->columns = sp_up(t->rows, w->path->lanes * w->path->pair);
    t->bh = (size_t)b * (size_t)at->heads + (size_t)head;
    t->at_q = sp_query_offset(at, b, head, row);
    load_rows(w, t, w->q, s->q, s->q_across, s->qt);
    load_rows(w, t, w->d_o, s->d_o, s->do_across, s->dot);
    from = t->bh * (size_t)at->q_len + (size_t)row;
    for (int i = 0; i < t->columns; i++) {
        t->lse[i] = i < t->rows ? w->lse[from + (size_t)i] : INFINITY;
        t->mean[i] = i < t->rows ? w->mean[from + (size_t)i] : 0;
    }
}

void sp_bwd_meet(const struct bwd *w, const struct bwd_scratch *s, const struct bwd_tile *t,
                 const struct sp_key_tile *k)
{
    const struct sp_attention_path *path = w->path;
    int diag = w->at->q_pos + t->row - k->pos;
    /* Rows of dK and dV that a product adds to besides: nobody here sees these keys, P and dS are 0; or it has no more. */
    int seen = sp_up(t->rows + diag, path->rows), keys = seen < k->n ? seen : k->n;
    int pair = path->pair;
    size_t ldw = (size_t)w->ldw, ldd = (size_t)w->ldd;
    struct sp_product p = {.kind = SP_KEYS_QUERIES,
                           .diag = diag,
                           .rows = keys,
                           .columns = t->columns,
                           .words = w->words,
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
                                  .scale = w->at->scale,
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
    p.columns = w->ldd, p.words = (t->rows + pair - 1) / pair;
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

void sp_bwd_store_keys(const struct bwd *w, const struct bwd_scratch *s,
                       const struct sp_key_tile *k, int b, int kv_head)
{
    const struct sp_attention *at = w->at;
    size_t from = sp_key_offset(at, k, b, kv_head), bytes = sp_dtype_bytes(w->type);
    size_t to_v = (size_t)at->kv_heads * (size_t)at->head_dim;
    char *dkv = w->dkv[k->slice];

    w->path->store(&(struct sp_tile_store){.type = w->type,
                                           .rows = k->n,
                                           .d = at->head_dim,
                                           .x = s->dk,
                                           .ldx = w->ldd,
                                           .scale = at->scale,
                                           .add = !w->first,
                                           .y = dkv + from * bytes,
                                           .ld = 2 * to_v});
    w->path->store(&(struct sp_tile_store){.type = w->type,
                                           .rows = k->n,
                                           .d = at->head_dim,
                                           .x = s->dv,
                                           .ldx = w->ldd,
                                           .scale = 1,
                                           .add = !w->first,
                                           .y = dkv + (from + to_v) * bytes,
                                           .ld = 2 * to_v});
}
