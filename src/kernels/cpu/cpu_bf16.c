/*
 * The CPU's tables for bf16. Streaming kernels read and write bf16 themselves, see pointwise.h. The
 * emulated table has the other kernels from here: each widens its inputs, computes with the f32
 * kernel, and rounds its results. It defines what bf16 kernels must give, and is slow. The other
 * table takes products and the head from linear_bf16.c and cross_entropy_bf16.c.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
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
    float *x;

    if (!from)
        return NULL;
    x = empty(c, n);
    sp_convert(SP_BF16, SP_F32, n, from, x);
    return x;
}

static void rounded(size_t n, const float *x, void *to)
{
    sp_convert(SP_F32, SP_BF16, n, x, to);
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

/* Elements of a matrix with a leading dimension, up to its last element. */
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

/* act of the product before u is rounded, as a fused epilogue computes it. */
static void linear_act(K, enum sp_activation kind, int T, int in, int out, const void *x,
                       const void *w, const void *bias, void *u, void *g)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, out));

    (void)k;
    sp_linear(T, in, out, widened(&c, area(T, in), x), widened(&c, area(out, in), w),
              widened(&c, (size_t)out, bias), result, out);
    rounded(area(T, out), result, u);
    sp_activation(kind, area(T, out), result, result);
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

static void linear_dx_act(K, enum sp_activation kind, int T, int in, int out, const void *dy,
                          const void *w, const void *u, void *du)
{
    struct copies c = {.n = 0};
    float *result = empty(&c, area(T, in));

    (void)k;
    sp_linear_dx(T, in, out, widened(&c, area(T, out), dy), out, widened(&c, area(out, in), w),
                 result, false);
    sp_activation_bwd(kind, area(T, in), widened(&c, area(T, in), u), result, result);
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
    (void)k;
    sp_norm_typed(SP_BF16, rms, T, h, eps, x, gain, bias, y, stats);
}

static void norm_apply(K, int T, int h, const void *x, const float *stats, const void *gain,
                       const void *bias, void *y)
{
    (void)k;
    sp_norm_apply_typed(SP_BF16, T, h, x, stats, gain, bias, y);
}

static void norm_bwd(K, bool rms, int T, int h, const void *x, const float *stats, const void *gain,
                     const void *dy, const void *dres, void *dx, float *dgain, float *dbias)
{
    (void)k;
    sp_norm_bwd_typed(SP_BF16, rms, T, h, x, stats, gain, dy, dres, dx, dgain, dbias);
}

/* ---- attention -------------------------------------------------------------------------- */

static void rope(K, int batch, int len, int heads, int d, int ld, int pos0,
                 const struct sp_rope *how, bool inverse, void *x)
{
    (void)k;
    sp_rope_typed(SP_BF16, batch, len, heads, d, ld, pos0, how, inverse, x);
}

static void attention(K, const struct sp_attention *at, const void *q, const void *const *kv,
                      void *o, float *lse)
{
    (void)k;
    sp_cpu_attention(SP_BF16, at, q, kv, o, lse);
}

static void attention_merge(K, const struct sp_attention *at, const void *part,
                            const float *part_lse, float *o, float *lse)
{
    (void)k;
    sp_cpu_attention_merge(SP_BF16, at, part, part_lse, o, lse);
}

static void attention_bwd(K, const struct sp_attention *at, const void *q, const void *const *kv,
                          const void *o, const float *lse, const void *d_o, void *dq,
                          void *const *dkv, bool first)
{
    (void)k;
    sp_cpu_attention_bwd(SP_BF16, at, q, kv, o, lse, d_o, dq, dkv, first);
}

/* ---- activations ------------------------------------------------------------------------ */

static void act(K, enum sp_activation kind, size_t n, const void *u, void *y)
{
    (void)k;
    sp_activation_typed(kind, SP_BF16, n, u, y);
}

static void gated(K, enum sp_activation kind, int T, int f, const void *u, void *y)
{
    (void)k;
    sp_gated_typed(kind, SP_BF16, T, f, u, y);
}

static void gated_bwd(K, enum sp_activation kind, int T, int f, const void *u, const void *dy,
                      void *du)
{
    (void)k;
    sp_gated_bwd_typed(kind, SP_BF16, T, f, u, dy, du);
}

/* ---- embedding and loss ------------------------------------------------------------------- */

static void embed(K, int batch, int len, int h, int pos0, const int32_t *ids, const void *table,
                  const void *positions, void *x)
{
    (void)k;
    sp_embed_typed(SP_BF16, batch, len, h, pos0, ids, table, positions, x);
}

static void embed_bwd(K, int batch, int len, int h, int pos0, const int32_t *ids, const void *dx,
                      float *dtable, float *dpositions)
{
    (void)k;
    sp_embed_bwd_typed(SP_BF16, batch, len, h, pos0, ids, dx, dtable, dpositions);
}

/* Logits stay f32 here. The device rounds its logits before the softmax, so its loss differs a
 * little. */
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
    (void)k;
    sp_add_typed(SP_BF16, n, x, y);
}

static void round_to(K, size_t n, const float *x, void *y)
{
    (void)k;
    sp_convert(SP_F32, SP_BF16, n, x, y);
}

const struct sp_backend sp_cpu_bf16_emulated = SP_CPU_TABLE(SP_BF16, );
const struct sp_backend sp_cpu_bf16 = SP_CPU_TABLE(SP_BF16, sp_bf16_);
