/* The CPU's table for f32: kernels.h, name by name. */
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include <math.h>
#include <string.h>

#define K const struct sp_backend *k

static void linear(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                   void *y, int ldy)
{
    (void)k;
    sp_linear(T, in, out, x, w, bias, y, ldy);
}

static void linear_add(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                       const void *residual, void *y)
{
    (void)k;
    sp_linear_add(T, in, out, x, w, bias, residual, y);
}

static void linear_act(K, enum sp_activation act, int T, int in, int out, const void *x,
                       const void *w, const void *bias, void *u, void *g)
{
    (void)k;
    sp_linear(T, in, out, x, w, bias, u, out);
    sp_activation(act, (size_t)T * (size_t)out, u, g);
}

static void linear_dx(K, int T, int in, int out, const void *dy, int lddy, const void *w, void *dx,
                      bool accumulate)
{
    (void)k;
    sp_linear_dx(T, in, out, dy, lddy, w, dx, accumulate);
}

static void linear_dx_act(K, enum sp_activation act, int T, int in, int out, const void *dy,
                          const void *w, const void *u, void *du)
{
    (void)k;
    sp_linear_dx(T, in, out, dy, out, w, du, false);
    sp_activation_bwd(act, (size_t)T * (size_t)in, u, du, du);
}

static void linear_dw(K, int T, int in, int out, const void *x, const void *dy, int lddy, float *dw,
                      float *dbias)
{
    (void)k;
    sp_linear_dw(T, in, out, x, dy, lddy, dw, dbias);
}

static void norm(K, bool rms, int T, int h, float eps, const void *x, const void *gain,
                 const void *bias, void *y, float *stats)
{
    (void)k;
    sp_norm(rms, T, h, eps, x, gain, bias, y, stats);
}

static void norm_apply(K, int T, int h, const void *x, const float *stats, const void *gain,
                       const void *bias, void *y)
{
    (void)k;
    sp_norm_apply(T, h, x, stats, gain, bias, y);
}

static void norm_bwd(K, bool rms, int T, int h, const void *x, const float *stats, const void *gain,
                     const void *dy, const void *dres, void *dx, float *dgain, float *dbias)
{
    (void)k;
    sp_norm_bwd(rms, T, h, x, stats, gain, dy, dres, dx, dgain, dbias);
}

static void rope(K, int batch, int len, int heads, int d, int ld, int pos0,
                 const struct sp_rope *how, bool inverse, void *x)
{
    (void)k;
    sp_rope(batch, len, heads, d, ld, pos0, how, inverse, x);
}

static void attention(K, const struct sp_attention *at, const void *q, const void *const *kv,
                      void *o, float *lse)
{
    (void)k;
    sp_cpu_attention(SP_F32, at, q, kv, o, lse);
}

static void attention_merge(K, const struct sp_attention *at, const void *part,
                            const float *part_lse, float *o, float *lse)
{
    (void)k;
    sp_cpu_attention_merge(SP_F32, at, part, part_lse, o, lse);
}

static void attention_bwd(K, const struct sp_attention *at, const void *q, const void *const *kv,
                          const void *o, const float *lse, const void *d_o, void *dq,
                          void *const *dkv, bool first)
{
    (void)k;
    sp_cpu_attention_bwd(SP_F32, at, q, kv, o, lse, d_o, dq, dkv, first);
}

static void act(K, enum sp_activation kind, size_t n, const void *u, void *y)
{
    (void)k;
    sp_activation(kind, n, u, y);
}

static void gated(K, enum sp_activation kind, int T, int f, const void *u, void *y)
{
    (void)k;
    sp_gated(kind, T, f, u, y);
}

static void gated_bwd(K, enum sp_activation kind, int T, int f, const void *u, const void *dy,
                      void *du)
{
    (void)k;
    sp_gated_bwd(kind, T, f, u, dy, du);
}

static void embed(K, int batch, int len, int h, int pos0, const int32_t *ids, const void *table,
                  const void *positions, void *x)
{
    (void)k;
    sp_embed(batch, len, h, pos0, ids, table, positions, x);
}

static void embed_bwd(K, int batch, int len, int h, int pos0, const int32_t *ids, const void *dx,
                      float *dtable, float *dpositions)
{
    (void)k;
    sp_embed_bwd(batch, len, h, pos0, ids, dx, dtable, dpositions);
}

static void cross_entropy(K, int T, int h, int V, int rows, const void *x, const void *w,
                          const int32_t *targets, float scale, double *loss, void *dx, float *dw,
                          void *scratch)
{
    (void)k;
    sp_cross_entropy(T, h, V, rows, x, w, targets, scale, loss, dx, dw, scratch);
}

static void add(K, size_t n, const void *x, void *y)
{
    (void)k;
    sp_add(n, x, y);
}

static void round_to(K, size_t n, const float *x, void *y)
{
    (void)k;
    sp_convert(SP_F32, SP_F32, n, x, y);
}

/* ---- what does not depend on the element type: cpu.h ----------------------------------------- */

/* w_low has the table's type. */
void sp_cpu_adamw(K, size_t n, const struct sp_adamw *hp, float *w, float *g, float *m, float *v,
                  void *w_low)
{
    sp_adamw_rounded(n, hp, w, g, m, v, k->dtype == SP_BF16 ? w_low : NULL);
    if (w_low && k->dtype != SP_BF16)
        k->round(k, n, w, w_low);
}

void sp_cpu_add_f32(K, size_t n, const float *x, float *y)
{
    (void)k;
    sp_add(n, x, y);
}

void sp_cpu_add_parts(K, size_t n, int parts, const void *const *x, void *y)
{
    sp_add_parts_typed(k->dtype, n, parts, x, y);
}

void sp_cpu_sumsq(K, size_t n, const float *g, double *sum)
{
    (void)k;
    sp_sumsq(n, g, sum);
}

size_t sp_cpu_first_not_finite(K, enum sp_dtype dtype, const void *x, size_t n)
{
    (void)k;
    for (size_t i = 0; i < n; i++) {
        float value =
            dtype == SP_BF16 ? sp_bf16_value(((const uint16_t *)x)[i]) : ((const float *)x)[i];

        if (!isfinite(value))
            return i;
    }
    return n;
}

static const struct sp_backend f32 = SP_CPU_TABLE(SP_F32, );

const struct sp_backend *sp_cpu_backend(enum sp_dtype dtype)
{
    return dtype == SP_BF16 ? &sp_cpu_bf16 : &f32;
}
