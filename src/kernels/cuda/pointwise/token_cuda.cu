/*
 * Embedding, equations in embed.c.
 *
 * Gradient of the table, in one order whatever the scheduling: the tokens are sorted by id, those
 * of one id stay in order, and one block adds up the rows of one id in that order, the order of the
 * CPU.
 */
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/pointwise/sums.h"

/* `positions`: of tokens first .. end-1 of every sequence, `step` elements apart; NULL: none. */
template <typename T, int V>
SP_KERNEL void embed_kernel(int rows, int len, int h, int first, int end, size_t step,
                            const int32_t *ids, const T *table, const T *positions, T *x)
{
    int row = (int)(blockIdx.x * blockDim.y + threadIdx.y);

    if (row >= rows)
        return;
    const bool here = ids[row] >= 0;
    const int t = row % len;
    table += here ? (size_t)ids[row] * (size_t)h : 0;
    positions = positions && t >= first && t < end ? positions + (size_t)(t - first) * step : NULL;
    x += (size_t)row * (size_t)h;
    for (int c = (int)threadIdx.x * V; c < h; c += (int)blockDim.x * V) {
        float a[V] = {0}, b[V] = {0};

        if (here)
            sp_load<V>(table + c, a);
        if (positions)
            sp_load<V>(positions + c, b);
        for (int v = 0; v < V; v++)
            a[v] = positions ? a[v] + b[v] : a[v];
        sp_store<V>(x + c, a);
    }
}

template <typename T>
static void embed(const struct sp_backend *k, const struct sp_embed *e, const void *table,
                  const void *positions, void *x)
{
    size_t width = (size_t)e->h, rows = (size_t)e->batch * (size_t)e->len;
    bool wide = sp_is_wide((const T *)table, width) && sp_is_wide((const T *)positions, width) &&
                sp_is_wide((const T *)x, width);
    struct sp_row_split s = sp_split_row(width / (wide ? (size_t)sp_wide<T>::N : 1));
    int first, end;

    sp_embed_here(e, &first, &end);
    positions = positions && first < end
                    ? (const T *)positions + (size_t)sp_embed_position(e, first) * width
                    : NULL;
    sp_launch(k, "embed", wide ? embed_kernel<T, sp_wide<T>::N> : embed_kernel<T, 1>,
              sp_blocks(rows, s.rows), dim3(s.threads, s.rows), 0, (int)rows, e->len, e->h, first,
              end, (size_t)(1 + e->skip) * width, e->ids, (const T *)table, (const T *)positions,
              (T *)x);
}

enum { SORT_TOKENS = SP_WARP, SORT_LANES = 8, SORT_TILE = 1024 };

/*
 * order(rows) = the tokens sorted by id, those of one id in order; sorted(rows) = their ids. A
 * token comes after those with a smaller id, and the earlier ones with its own. That is rows^2
 * comparisons of a few instructions: for 2^14 rows about the time it takes to read their gradients,
 * for 2^20 a tenth of a second. A block has 32 tokens, eight threads each.
 */
SP_KERNEL void sort_tokens_kernel(int rows, const int32_t *ids, int32_t *order, int32_t *sorted)
{
    int32_t *tile = sp_shared<int32_t>(), *counts = tile + SORT_TILE;
    int x = (int)threadIdx.x, y = (int)threadIdx.y, token = (int)blockIdx.x * SORT_TOKENS + x;
    int32_t id = token < rows ? ids[token] : 0;
    int count = 0;

    for (int at = 0; at < rows; at += SORT_TILE) {
        int n = rows - at < SORT_TILE ? rows - at : SORT_TILE;

        __syncthreads();
        for (int i = y * SORT_TOKENS + x; i < n; i += SORT_TOKENS * SORT_LANES)
            tile[i] = ids[at + i];
        __syncthreads();
#pragma unroll 8
        for (int i = y; i < n; i += SORT_LANES)
            count += tile[i] < id || (tile[i] == id && at + i < token);
    }
    counts[y * SORT_TOKENS + x] = count;
    __syncthreads();
    if (y || token >= rows)
        return;
    for (int l = 1; l < SORT_LANES; l++)
        count += counts[l * SORT_TOKENS + x];
    order[count] = token;
    sorted[count] = id;
}

/* A block has one place in the order, and does nothing unless an id begins there; `pieces` blocks
 * share the columns. Several rows are read at a time, and added one by one. */
template <typename T, int V>
SP_KERNEL void embed_bwd_kernel(int rows, int h, unsigned pieces, const int32_t *order,
                                const int32_t *sorted, const T *dx, float *dtable)
{
    enum { AHEAD = 4 };
    int at = (int)(blockIdx.x / pieces);
    int c = (int)((blockIdx.x % pieces) * blockDim.x + threadIdx.x) * V;
    int32_t id = sorted[at];
    float sum[V], d[AHEAD][V];
    bool same[AHEAD];

    if ((at > 0 && sorted[at - 1] == id) || c >= h || id < 0)
        return;
    dtable += (size_t)id * (size_t)h + c;
    sp_load<V>(dtable, sum);
    do {
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            same[j] = at + j < rows && sorted[at + j] == id;
            if (same[j])
                sp_load<V>(dx + (size_t)order[at + j] * (size_t)h + c, d[j]);
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            for (int v = 0; v < V; v++)
                sum[v] += same[j] ? d[j][v] : 0;
        at += AHEAD;
    } while (same[AHEAD - 1]);
    sp_store<V>(dtable, sum);
}

/* The position of one token of every sequence, from token `first` on, `step` elements apart; the sequences in order. */
template <typename T, int V>
SP_KERNEL void embed_positions_kernel(int batch, int len, int first, int h, size_t step,
                                      unsigned pieces, const T *dx, float *dpositions)
{
    size_t at = blockIdx.x / pieces, t = at + (size_t)first;
    int c = (int)((blockIdx.x % pieces) * blockDim.x + threadIdx.x) * V;
    float sum[V], d[V];

    if (c >= h)
        return;
    sp_load<V>(dpositions + at * step + c, sum);
#pragma unroll 4
    for (int b = 0; b < batch; b++) {
        sp_load<V>(dx + ((size_t)b * (size_t)len + t) * (size_t)h + c, d);
        for (int v = 0; v < V; v++)
            sum[v] += d[v];
    }
    sp_store<V>(dpositions + at * step + c, sum);
}

template <typename T>
static void embed_bwd(const struct sp_backend *k, const struct sp_embed *e, const void *dx,
                      float *dtable, float *dpositions)
{
    size_t width = (size_t)e->h, rows = (size_t)e->batch * (size_t)e->len;
    const T *d = (const T *)dx;
    bool wide = sp_is_wide(d, width) && sp_is_wide(dtable, width) && sp_is_wide(dpositions, width);
    struct sp_row_split s = sp_split_row(width / (wide ? (size_t)sp_wide<T>::N : 1));
    int32_t *order = (int32_t *)sp_cuda_workspace(k, 2 * rows * sizeof *order);
    int first, end;

    sp_embed_here(e, &first, &end);
    sp_launch(k, "sort_tokens", sort_tokens_kernel, sp_blocks(rows, SORT_TOKENS),
              dim3(SORT_TOKENS, SORT_LANES),
              (SORT_TILE + SORT_TOKENS * SORT_LANES) * sizeof(int32_t), (int)rows, e->ids, order,
              order + rows);
    sp_launch(k, "embed_bwd", wide ? embed_bwd_kernel<T, sp_wide<T>::N> : embed_bwd_kernel<T, 1>,
              (unsigned)rows * s.pieces, s.threads, 0, (int)rows, e->h, s.pieces, order,
              order + rows, d, dtable);
    if (dpositions && first < end)
        sp_launch(k, "embed_positions",
                  wide ? embed_positions_kernel<T, sp_wide<T>::N> : embed_positions_kernel<T, 1>,
                  (unsigned)(end - first) * s.pieces, s.threads, 0, e->batch, e->len, first, e->h,
                  (size_t)(1 + e->skip) * width, s.pieces, d,
                  dpositions + (size_t)sp_embed_position(e, first) * width);
}

template <typename T> static void token_fill(struct sp_backend *backend)
{
    backend->embed = embed<T>;
    backend->embed_bwd = embed_bwd<T>;
}

extern "C" void sp_cuda_token_fill(struct sp_backend *backend)
{
    (backend->dtype == SP_BF16 ? token_fill<bf16> : token_fill<float>)(backend);
}
