/*
 * The CPU's table for bf16: each kernel widens what it reads, computes with the f32 kernel, and
 * rounds what it writes. It says what a GPU's bf16 kernels must give, and lets every schedule run
 * in bf16 on any machine; it is slower than f32.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

#define K const struct sp_backend *k

/* The f32 copies of one call. */
struct copies {
    float *at[2 * 256 + 8]; /* keys, values and their gradients of every slice, and a few more */
    int n;
};

static float *empty(struct copies *c, size_t n)
{
    float *x = malloc(n ? n * sizeof *x : 1);

    if (!x || c->n == (int)(sizeof c->at / sizeof *c->at)) {
        sp_error(ENOMEM, "kernels: no memory for %zu floats of a bf16 kernel", n);
        abort();
    }
    c->at[c->n++] = x;
    return x;
}

/* NULL stays NULL. */
static float *widened(struct copies *c, size_t n, const void *from)
{
    const uint16_t *b = from;
    float *x;

    if (!b)
        return NULL;
    x = empty(c, n);
#pragma omp parallel for if (n > SP_TEAM_WORTH)
    for (size_t i = 0; i < n; i++)
        x[i] = sp_bf16_value(b[i]);
    return x;
}

static void rounded(size_t n, const float *x, void *to)
{
    uint16_t *b = to;

#pragma omp parallel for if (n > SP_TEAM_WORTH)
    for (size_t i = 0; i < n; i++)
        b[i] = sp_bf16(x[i]);
}

static void done(struct copies *c)
{
    while (c->n > 0)
        free(c->at[--c->n]);
}

static size_t area(int rows, int width)
{
    return (size_t)rows * (size_t)width;
}

/* Of a matrix with a leading dimension, up to its last element. */
static size_t spread(int rows, int width, int ld)
{
    return rows > 0 ? (size_t)(rows - 1) * (size_t)ld + (size_t)width : 0;
}

static void round_rows(int rows, int width, const float *x, int ldx, void *to, int ld)
{
    for (int t = 0; t < rows; t++)
        rounded((size_t)width, x + area(t, ldx), (uint16_t *)to + area(t, ld));
}

/* ---- products --------------------------------------------------------------------------- */

static void linear(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                   void *y, int ldy)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, out));

    (void)k;
    sp_linear(T, in, out, widened(&c, area(T, in), x), widened(&c, area(out, in), w),
              widened(&c, (size_t)out, bias), result, out);
    round_rows(T, out, result, out, y, ldy);
    done(&c);
}

static void linear_add(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                       const void *residual, void *y)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, out));

    (void)k;
    sp_linear_add(T, in, out, widened(&c, area(T, in), x), widened(&c, area(out, in), w),
                  widened(&c, (size_t)out, bias), widened(&c, area(T, out), residual), result);
    rounded(area(T, out), result, y);
    done(&c);
}

/* gelu of the product as it was before u was rounded, as a fused epilogue does. */
static void linear_gelu(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                        void *u, void *g)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, out));

    (void)k;
    sp_linear(T, in, out, widened(&c, area(T, in), x), widened(&c, area(out, in), w),
              widened(&c, (size_t)out, bias), result, out);
    rounded(area(T, out), result, u);
    sp_gelu(area(T, out), result, result);
    rounded(area(T, out), result, g);
    done(&c);
}

static void linear_dx(K, int T, int in, int out, const void *dy, int lddy, const void *w, void *dx,
                      bool accumulate)
{
    struct copies c = {.n = 0};
    float *result = accumulate ? widened(&c, area(T, in), dx) : empty(&c, area(T, in));

    (void)k;
    sp_linear_dx(T, in, out, widened(&c, spread(T, out, lddy), dy), lddy,
                 widened(&c, area(out, in), w), result, accumulate);
    rounded(area(T, in), result, dx);
    done(&c);
}

static void linear_dx_gelu(K, int T, int in, int out, const void *dy, const void *w, const void *u,
                           void *du)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, in));

    (void)k;
    sp_linear_dx(T, in, out, widened(&c, area(T, out), dy), out, widened(&c, area(out, in), w),
                 result, false);
    sp_gelu_bwd(area(T, in), widened(&c, area(T, in), u), result, result);
    rounded(area(T, in), result, du);
    done(&c);
}

static void linear_dw(K, int T, int in, int out, const void *x, const void *dy, int lddy, float *dw,
                      float *dbias)
{
    struct copies c = {.n = 0};

    (void)k;
    sp_linear_dw(T, in, out, widened(&c, area(T, in), x), widened(&c, spread(T, out, lddy), dy),
                 lddy, dw, dbias);
    done(&c);
}

/* ---- norms ------------------------------------------------------------------------------ */

static void norm(K, bool rms, int T, int h, float eps, const void *x, const void *gain,
                 const void *bias, void *y, float *stats)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, h));

    (void)k;
    sp_norm(rms, T, h, eps, widened(&c, area(T, h), x), widened(&c, (size_t)h, gain),
            widened(&c, (size_t)h, bias), result, stats);
    rounded(area(T, h), result, y);
    done(&c);
}

static void norm_apply(K, int T, int h, const void *x, const float *stats, const void *gain,
                       const void *bias, void *y)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, h));

    (void)k;
    sp_norm_apply(T, h, widened(&c, area(T, h), x), stats, widened(&c, (size_t)h, gain),
                  widened(&c, (size_t)h, bias), result);
    rounded(area(T, h), result, y);
    done(&c);
}

static void norm_bwd(K, bool rms, int T, int h, const void *x, const float *stats, const void *gain,
                     const void *dy, const void *dres, void *dx, float *dgain, float *dbias)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, h));

    (void)k;
    sp_norm_bwd(rms, T, h, widened(&c, area(T, h), x), stats, widened(&c, (size_t)h, gain),
                widened(&c, area(T, h), dy), widened(&c, area(T, h), dres), result, dgain, dbias);
    rounded(area(T, h), result, dx);
    done(&c);
}

/* ---- attention -------------------------------------------------------------------------- */

static void rope(K, int batch, int len, int heads, int d, int ld, int pos0,
                 const struct sp_rope *how, bool inverse, void *x)
{
    struct copies c = {.n = 0};
    int T = batch * len, width = heads * d;
    float *all = widened(&c, spread(T, width, ld), x);

    (void)k;
    sp_rope(batch, len, heads, d, ld, pos0, how, inverse, all);
    round_rows(T, width, all, ld, x, ld);
    done(&c);
}

static size_t query_size(const struct sp_attention *at)
{
    return area(at->batch * at->q_len, at->heads * at->head_dim);
}

static size_t key_size(const struct sp_attention *at, int j)
{
    return area(at->batch * at->kv_len[j], 2 * at->kv_heads * at->head_dim);
}

static void widen_keys(struct copies *c, const struct sp_attention *at, const void *const *kv,
                       float *wide[])
{
    for (int j = 0; j < at->n_kv; j++)
        wide[j] = widened(c, key_size(at, j), kv[j]);
}

static void attention(K, const struct sp_attention *at, const void *q, const void *const *kv,
                      void *o, float *lse)
{
    struct copies c = {.n = 0};
    float *wide[256], *result = empty(&c, query_size(at));

    (void)k;
    widen_keys(&c, at, kv, wide);
    sp_attention(at, widened(&c, query_size(at), q), (const float *const *)wide, result, lse);
    rounded(query_size(at), result, o);
    done(&c);
}

static void attention_bwd(K, const struct sp_attention *at, const void *q, const void *const *kv,
                          const void *o, const float *lse, const void *d_o, void *dq,
                          void *const *dkv, bool first)
{
    struct copies c = {.n = 0};
    float *wide[256], *sum[256], *result = empty(&c, query_size(at));

    (void)k;
    widen_keys(&c, at, kv, wide);
    for (int j = 0; j < at->n_kv; j++) {
        sum[j] = first ? empty(&c, key_size(at, j)) : widened(&c, key_size(at, j), dkv[j]);
        if (first)
            memset(sum[j], 0, key_size(at, j) * sizeof(float));
    }
    sp_attention_bwd(at, widened(&c, query_size(at), q), (const float *const *)wide,
                     widened(&c, query_size(at), o), lse, widened(&c, query_size(at), d_o), result,
                     sum);
    rounded(query_size(at), result, dq);
    for (int j = 0; j < at->n_kv; j++)
        rounded(key_size(at, j), sum[j], dkv[j]);
    done(&c);
}

/* ---- activations ------------------------------------------------------------------------ */

static void gelu(K, size_t n, const void *u, void *y)
{
    struct copies c = {.n = 0};
    float *x = widened(&c, n, u);

    (void)k;
    sp_gelu(n, x, x);
    rounded(n, x, y);
    done(&c);
}

static void swiglu(K, int T, int f, const void *u, void *y)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, f));

    (void)k;
    sp_swiglu(T, f, widened(&c, area(T, 2 * f), u), result);
    rounded(area(T, f), result, y);
    done(&c);
}

static void swiglu_bwd(K, int T, int f, const void *u, const void *dy, void *du)
{
    struct copies c = {.n = 0};
    float *x = widened(&c, area(T, 2 * f), u);

    (void)k;
    sp_swiglu_bwd(T, f, x, widened(&c, area(T, f), dy), x);
    rounded(area(T, 2 * f), x, du);
    done(&c);
}

/* ---- embedding and loss ------------------------------------------------------------------- */

/* Only the rows that are read are widened: a table is large. */
static void embed(K, int batch, int len, int h, int pos0, const int32_t *ids, const void *table,
                  const void *positions, void *x)
{
    const uint16_t *rows = table, *places = positions;
    uint16_t *to = x;

    (void)k;
    for (int t = 0; t < batch * len; t++)
        for (int j = 0; j < h; j++) {
            float value = sp_bf16_value(rows[area(ids[t], h) + (size_t)j]);

            if (places)
                value += sp_bf16_value(places[area(pos0 + t % len, h) + (size_t)j]);
            to[area(t, h) + (size_t)j] = sp_bf16(value);
        }
}

static void embed_bwd(K, int batch, int len, int h, int pos0, const int32_t *ids, const void *dx,
                      float *dtable, float *dpositions)
{
    struct copies c = {.n = 0};

    (void)k;
    sp_embed_bwd(batch, len, h, pos0, ids, widened(&c, area(batch * len, h), dx), dtable,
                 dpositions);
    done(&c);
}

/* Logits stay f32 here. The device's are rounded before the softmax: the loss differs by as much. */
static void cross_entropy(K, int T, int h, int V, int rows, const void *x, const void *w,
                          const int32_t *targets, float scale, double *loss, void *dx, float *dw,
                          void *scratch)
{
    struct copies c = {.n = 0};
    float *result = dx ? empty(&c, area(T, h)) : NULL, *logits = empty(&c, area(rows, V));

    (void)k, (void)scratch;
    sp_cross_entropy(T, h, V, rows, widened(&c, area(T, h), x), widened(&c, area(V, h), w), targets,
                     scale, loss, result, dw, logits);
    if (dx)
        rounded(area(T, h), result, dx);
    done(&c);
}

/* ---- parameters -------------------------------------------------------------------------- */

static void add(K, size_t n, const void *x, void *y)
{
    const uint16_t *a = x;
    uint16_t *b = y;

    (void)k;
    for (size_t i = 0; i < n; i++)
        b[i] = sp_bf16(sp_bf16_value(a[i]) + sp_bf16_value(b[i]));
}

static void round_to(K, size_t n, const float *x, void *y)
{
    (void)k;
    rounded(n, x, y);
}

const struct sp_backend sp_cpu_bf16 = SP_CPU_TABLE(SP_BF16);
