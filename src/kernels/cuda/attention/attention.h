/*
 * Shared by the kernels of causal attention: the shape, rows of queries, rows of keys over slices.
 *
 * Slices are passed by value, and the parameters of a kernel may take 4 KiB on any driver: that is
 * 256 slices if keys are only read, 128 at a time if dK and dV are written. A tile of keys may
 * cross from slice to slice: results do not depend on how the keys are cut.
 */
#ifndef SP_CUDA_ATTENTION_H
#define SP_CUDA_ATTENTION_H

#include "kernels/cuda/device/launch.h"

enum {
    ATTENTION_SLICES = 256,
    ATTENTION_CHUNK = 128,
    ATTENTION_HEAD = 256 /* largest head */
};

struct attention_shape {
    int batch, heads, kv_heads, d;
    int q_len, q_pos;
    int seen; /* keys that some query sees: 0 .. seen-1 */
    float scale;
    bool wide; /* every row can be accessed 16 bytes at a time */
};

/* Arguments of the backward's passes. */
struct attention_grads {
    const struct sp_backend *k;
    const struct sp_attention *at;
    struct attention_shape a;
    const void *q, *d_o;
    const float *lse, *means; /* means(batch,a,q_len) = D */
    const void *const *kv;
    void *const *dkv;
    void *dq;
    bool first;
};

/* Keys begin .. end[n-1]-1 of the sequence; slice j ends before key end[j]. */
template <int N> struct attention_slices {
    int n, begin;
    int end[N];
    void *kv[N]; /* (batch, rows of the slice, 2*g*d) */
};

/* ---- host ---------------------------------------------------------------------------------- */

/* Takes `n` slices from `from` on, which start at key `begin`. */
template <int N>
static inline void attention_take(const struct sp_attention *at, int from, int n, int begin,
                                  const void *const *kv, struct attention_slices<N> *s)
{
    if (n > N)
        sp_cuda_fatal("cuda: attention over %d slices, and %d is the most", n, N);
    s->n = n;
    s->begin = begin;
    for (int j = 0; j < n; j++) {
        begin += at->kv_len[from + j];
        s->end[j] = begin;
        s->kv[j] = (void *)kv[from + j];
    }
}

/*
 * Launches a kernel for each chunk of slices that its parameters can hold, with keys, values and
 * their gradients: launch(kv, dkv, tiles of `rows` keys). Each key row has its own sums, so the
 * cuts change nothing.
 */
template <typename F>
static inline void attention_each_chunk(const struct attention_grads &w, size_t rows, F launch)
{
    int begin = 0;

    for (int from = 0; from < w.at->n_kv; from += ATTENTION_CHUNK) {
        int left = w.at->n_kv - from, n = left < ATTENTION_CHUNK ? left : ATTENTION_CHUNK, end;
        struct attention_slices<ATTENTION_CHUNK> kv, dkv;

        attention_take(w.at, from, n, begin, w.kv, &kv);
        attention_take(w.at, from, n, begin, (const void *const *)w.dkv, &dkv);
        end = kv.end[n - 1];
        launch(kv, dkv, sp_blocks((size_t)(end - begin), rows));
        begin = end;
    }
}

template <typename T>
static inline struct attention_shape
attention_shape_of(const struct sp_attention *at, const void *const *kv, const void *const *dkv,
                   const void *const rows[], int n)
{
    struct attention_shape a = {};
    size_t d = (size_t)at->head_dim;
    int keys = 0;

    if (at->head_dim > ATTENTION_HEAD)
        sp_cuda_fatal("cuda: heads of %d, and attention is made for %d at most", at->head_dim,
                      ATTENTION_HEAD);
    a.batch = at->batch;
    a.heads = at->heads;
    a.kv_heads = at->kv_heads;
    a.d = at->head_dim;
    a.q_len = at->q_len;
    a.q_pos = at->q_pos;
    a.scale = at->scale;
    a.wide = true;
    for (int i = 0; i < n; i++)
        a.wide = a.wide && sp_is_wide((const T *)rows[i], d);
    for (int j = 0; j < at->n_kv; j++) {
        keys += at->kv_len[j];
        a.wide =
            a.wide && sp_is_wide((const T *)kv[j], d) && (!dkv || sp_is_wide((const T *)dkv[j], d));
    }
    a.seen = at->q_pos + at->q_len < keys ? at->q_pos + at->q_len : keys;
    return a;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Offset of a query's row of one head in q, o, do, dq. */
SP_DEVICE size_t attention_query(const struct attention_shape &a, int b, int row, int head)
{
    return (((size_t)b * (size_t)a.q_len + (size_t)row) * (size_t)a.heads + (size_t)head) *
           (size_t)a.d;
}

/* Offset of a query's row of one head in lse and D. */
SP_DEVICE size_t attention_row(const struct attention_shape &a, int b, int row, int head)
{
    return ((size_t)b * (size_t)a.heads + (size_t)head) * (size_t)a.q_len + (size_t)row;
}

/* The keys of one head in row `pos`; slice j is its own or an earlier one. The values are
 * kv_heads * d further. */
template <typename T, int N>
SP_DEVICE T *attention_key(const struct attention_slices<N> &s, const struct attention_shape &a,
                           int b, int kv_head, int pos, int j)
{
    int start;
    size_t row;

    while (pos >= s.end[j])
        j++;
    start = j ? s.end[j - 1] : s.begin;
    row = (size_t)b * (size_t)(s.end[j] - start) + (size_t)(pos - start);
    return (T *)s.kv[j] + (row * 2 * (size_t)a.kv_heads + (size_t)kv_head) * (size_t)a.d;
}

/* ---- the tile of a block --------------------------------------------------------------------- */

/* Queries row .. row+rows-1 of one head. The first is token `first` of the sequence; they see keys
 * before `end`. */
struct query_tile {
    int b, head, kv_head;
    int row, rows, first, end;
};

/* The tile of this block, at most M queries. The last tiles see the most keys, so they go first. */
template <int M> SP_DEVICE struct query_tile query_tile_of(const struct attention_shape &a)
{
    int all = a.batch * a.heads, block = (int)blockIdx.x;
    struct query_tile t;

    t.b = block % all / a.heads;
    t.head = block % a.heads;
    t.kv_head = t.head / (a.heads / a.kv_heads);
    t.row = (a.q_len - 1) / M * M - block / all * M;
    t.rows = a.q_len - t.row < M ? a.q_len - t.row : M;
    t.first = a.q_pos + t.row;
    t.end = t.first + t.rows < a.seen ? t.first + t.rows : a.seen;
    return t;
}

/* ---- the parts of sp_cuda_attention_fill, one in each file ----------------------------------- */

extern "C" {
void sp_cuda_attention_merge_fill(struct sp_backend *backend);
void sp_cuda_rope_fill(struct sp_backend *backend);
void sp_cuda_attention_bwd_fill(struct sp_backend *backend);
}

/* True if the bf16 kernels on the tensor cores can compute the shape; else the f32 kernels must. */
static inline bool attention_mma_can(const struct attention_shape *a)
{
    return a->wide && a->d <= 128;
}

void sp_cuda_attention_mma(const struct sp_backend *k, const struct attention_shape *a,
                           const struct attention_slices<ATTENTION_SLICES> *kv, const void *q,
                           void *o, float *lse);
void sp_cuda_attention_mma_bwd(const struct attention_grads *w);

#endif
