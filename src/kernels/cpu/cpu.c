/*
 * The CPU's tables. Streaming kernels read and write either type, see pointwise.h; products and the
 * head are of the type: those of kernels.h for f32, those of linear_bf16.c and cross_entropy_bf16.c
 * for bf16. In the emulated table they widen their inputs, compute with the f32 kernel, and round
 * its results: that defines what bf16 kernels must give, and is slow.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define K const struct sp_backend *k

/* ---- of either type --------------------------------------------------------------------- */

static void norm(K, const struct sp_norm *n, const void *x, void *y, float *stats)
{
    sp_norm_typed(k->dtype, n, x, y, stats);
}

static void norm_apply(K, const struct sp_norm *n, const void *x, const float *stats, void *y)
{
    sp_norm_apply_typed(k->dtype, n, x, stats, y);
}

static void norm_bwd(K, const struct sp_norm *n, const void *x, const float *stats,
                     const struct sp_norm_bwd *g)
{
    sp_norm_bwd_typed(k->dtype, n, x, stats, g);
}

static void rope(K, const struct sp_rotation *r, bool inverse, void *x)
{
    sp_rope_typed(k->dtype, r, inverse, x);
}

static void attention(K, const struct sp_attention *at, const void *q, const void *const *kv,
                      void *o, float *lse)
{
    sp_cpu_attention(k->dtype, at, q, kv, o, lse);
}

static void attention_merge(K, const struct sp_attention *at, const void *part,
                            const float *part_lse, float *o, float *lse)
{
    sp_cpu_attention_merge(k->dtype, at, part, part_lse, o, lse);
}

static void attention_bwd(K, const struct sp_attention *at, const struct sp_attention_bwd *b)
{
    sp_cpu_attention_bwd(k->dtype, at, b);
}

static void act(K, enum sp_activation kind, size_t n, const void *u, void *y)
{
    sp_activation_typed(kind, k->dtype, n, u, y);
}

static void gated(K, const struct sp_gated *g, const void *u, void *y)
{
    sp_gated_typed(k->dtype, g, u, y);
}

static void gated_bwd(K, const struct sp_gated *g, const void *u, const void *dy, void *du)
{
    sp_gated_bwd_typed(k->dtype, g, u, dy, du);
}

static void embed(K, const struct sp_embed *e, const void *table, const void *positions, void *x)
{
    sp_embed_typed(k->dtype, e, table, positions, x);
}

static void embed_bwd(K, const struct sp_embed *e, const void *dx, float *dtable, float *dpositions)
{
    sp_embed_bwd_typed(k->dtype, e, dx, dtable, dpositions);
}

static void add_f32(K, size_t n, const float *x, float *y)
{
    (void)k;
    sp_add(n, x, y);
}

static void add(K, size_t n, const void *x, void *y)
{
    sp_add_typed(k->dtype, n, x, y);
}

static void add_parts(K, size_t n, int parts, const void *const *x, void *y)
{
    sp_add_parts_typed(k->dtype, n, parts, x, y);
}

static void sumsq(K, size_t n, const float *g, double *sum)
{
    (void)k;
    sp_sumsq(n, g, sum);
}

static void adamw(K, const struct sp_adamw *hp, const struct sp_adamw_arrays *a)
{
    if (k->dtype == SP_BF16)
        sp_adamw_rounded(hp, a);
    else
        sp_adamw(hp, a);
}

static void round_to(K, size_t n, const float *x, void *y)
{
    sp_convert(SP_F32, k->dtype, n, x, y);
}

static size_t first_not_finite(K, enum sp_dtype dtype, const void *x, size_t n)
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

/* ---- products and the head in f32 -------------------------------------------------------- */

static void f32_linear(K, const struct sp_linear *l, const void *x, void *y)
{
    (void)k;
    sp_linear(l, x, y);
}

static void f32_linear_add(K, const struct sp_linear *l, const void *x, const void *residual,
                           void *y)
{
    (void)k;
    sp_linear_add(l, x, residual, y);
}

static void f32_linear_act(K, const struct sp_linear *l, enum sp_activation kind, const void *x,
                           void *u, void *g)
{
    (void)k;
    sp_linear(l, x, u);
    sp_activation(kind, (size_t)l->T * (size_t)l->out, u, g);
}

static void f32_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate)
{
    (void)k;
    sp_linear_dx(l, dy, dx, accumulate);
}

static void f32_linear_dx_act(K, const struct sp_linear *l, enum sp_activation kind, const void *dy,
                              const void *u, void *du)
{
    (void)k;
    sp_linear_dx(l, dy, du, false);
    sp_activation_bwd(kind, (size_t)l->T * (size_t)l->in, u, du, du);
}

static void f32_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                          float *dbias)
{
    (void)k;
    sp_linear_dw(l, x, dy, dw, dbias);
}

static void f32_cross_entropy(K, const struct sp_logits *l, double *loss, void *dx, float *dw)
{
    (void)k;
    sp_cross_entropy(l, loss, dx, dw);
}

/* ---- products and the head in bf16, through f32 copies of whole arrays --------------------- */

/* The f32 copies of one call. */
struct copies {
    float *at[8];
    int n;
};

static float *new_copy(struct copies *c, size_t n)
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
    x = new_copy(c, n);
    sp_convert(SP_BF16, SP_F32, n, from, x);
    return x;
}

static void rounded(size_t n, const float *x, void *to)
{
    sp_convert(SP_F32, SP_BF16, n, x, to);
}

static void free_copies(struct copies *c)
{
    while (c->n > 0)
        free(c->at[--c->n]);
}

static size_t area(int rows, int width)
{
    return (size_t)rows * (size_t)width;
}

/* Elements of a matrix with a leading dimension, up to its last element. */
static size_t strided_elements(int rows, int width, int ld)
{
    return rows > 0 ? (size_t)(rows - 1) * (size_t)ld + (size_t)width : 0;
}

static void round_rows(int rows, int width, const float *x, int ldx, void *to, int ld)
{
    for (int t = 0; t < rows; t++)
        rounded((size_t)width, x + area(t, ldx), (uint16_t *)to + area(t, ld));
}

/* The layer with f32 copies of w and bias. */
static struct sp_linear widened_layer(struct copies *c, const struct sp_linear *l)
{
    struct sp_linear wide = *l;

    wide.w = widened(c, area(l->out, l->in), l->w);
    wide.bias = widened(c, (size_t)l->out, l->bias);
    return wide;
}

static void emulated_linear(K, const struct sp_linear *l, const void *x, void *y)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    float *result = new_copy(&c, area(l->T, l->out));

    (void)k;
    wide.ld = l->out;
    sp_linear(&wide, widened(&c, area(l->T, l->in), x), result);
    round_rows(l->T, l->out, result, l->out, y, sp_linear_ld(l));
    free_copies(&c);
}

static void emulated_linear_add(K, const struct sp_linear *l, const void *x, const void *residual,
                                void *y)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    float *result = new_copy(&c, area(l->T, l->out));

    (void)k;
    sp_linear_add(&wide, widened(&c, area(l->T, l->in), x),
                  widened(&c, area(l->T, l->out), residual), result);
    rounded(area(l->T, l->out), result, y);
    free_copies(&c);
}

/* act of the product before u is rounded, as a fused epilogue computes it. */
static void emulated_linear_act(K, const struct sp_linear *l, enum sp_activation kind,
                                const void *x, void *u, void *g)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    float *result = new_copy(&c, area(l->T, l->out));

    (void)k;
    sp_linear(&wide, widened(&c, area(l->T, l->in), x), result);
    rounded(area(l->T, l->out), result, u);
    sp_activation(kind, area(l->T, l->out), result, result);
    rounded(area(l->T, l->out), result, g);
    free_copies(&c);
}

static void emulated_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx,
                               bool accumulate)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    size_t n = area(l->T, l->in);
    float *result = accumulate ? widened(&c, n, dx) : new_copy(&c, n);

    (void)k;
    sp_linear_dx(&wide, widened(&c, strided_elements(l->T, l->out, sp_linear_ld(l)), dy), result,
                 accumulate);
    rounded(n, result, dx);
    free_copies(&c);
}

static void emulated_linear_dx_act(K, const struct sp_linear *l, enum sp_activation kind,
                                   const void *dy, const void *u, void *du)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    size_t n = area(l->T, l->in);
    float *result = new_copy(&c, n);

    (void)k;
    sp_linear_dx(&wide, widened(&c, area(l->T, l->out), dy), result, false);
    sp_activation_bwd(kind, n, widened(&c, n, u), result, result);
    rounded(n, result, du);
    free_copies(&c);
}

static void emulated_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy,
                               float *dw, float *dbias)
{
    struct copies c = {.n = 0};

    (void)k;
    sp_linear_dw(l, widened(&c, area(l->T, l->in), x),
                 widened(&c, strided_elements(l->T, l->out, sp_linear_ld(l)), dy), dw, dbias);
    free_copies(&c);
}

/* Logits stay f32 here. The device rounds its logits before the softmax, so its loss differs a
 * little. */
static void emulated_cross_entropy(K, const struct sp_logits *l, double *loss, void *dx, float *dw)
{
    struct copies c = {.n = 0};
    struct sp_logits wide = *l;
    float *result = dx ? new_copy(&c, area(l->T, l->h)) : NULL;

    (void)k;
    wide.x = widened(&c, area(l->T, l->h), l->x);
    wide.w = widened(&c, area(l->V, l->h), l->w);
    wide.scratch = new_copy(&c, area(l->rows, l->V));
    sp_cross_entropy(&wide, loss, result, dw);
    if (dx)
        rounded(area(l->T, l->h), result, dx);
    free_copies(&c);
}

/* ---- the tables -------------------------------------------------------------------------- */

/* Products and the head have `prefix` before their names. */
#define TABLE(type, prefix)                                                                        \
    {                                                                                              \
        .name = "cpu", .dtype = type, .linear = prefix##linear, .linear_add = prefix##linear_add,  \
        .linear_act = prefix##linear_act, .linear_dx = prefix##linear_dx,                          \
        .linear_dx_act = prefix##linear_dx_act, .linear_dw = prefix##linear_dw, .norm = norm,      \
        .norm_apply = norm_apply, .norm_bwd = norm_bwd, .rope = rope, .attention = attention,      \
        .attention_merge = attention_merge, .attention_bwd = attention_bwd, .act = act,            \
        .gated = gated, .gated_bwd = gated_bwd, .embed = embed, .embed_bwd = embed_bwd,            \
        .cross_entropy = prefix##cross_entropy, .logit_stats = sp_cpu_logit_stats,                 \
        .merge_logits = sp_cpu_merge_logits, .merge_stats = sp_cpu_merge_stats,                    \
        .logits_bwd = sp_cpu_logits_bwd, .add = add, .round = round_to, .adamw = adamw,            \
        .add_f32 = add_f32, .add_parts = add_parts, .add_at_random = sp_cpu_add_at_random,         \
        .add_to_f32 = sp_cpu_add_to_f32, .sumsq = sumsq, .clear = sp_cpu_clear,                    \
        .copy = sp_cpu_copy, .copy_rows = sp_cpu_copy_rows, .first_not_finite = first_not_finite,  \
    }

static const struct sp_backend f32 = TABLE(SP_F32, f32_);
static const struct sp_backend bf16 = TABLE(SP_BF16, sp_bf16_);
const struct sp_backend sp_cpu_bf16_emulated = TABLE(SP_BF16, emulated_);

const struct sp_backend *sp_cpu_backend(enum sp_dtype dtype)
{
    return dtype == SP_BF16 ? &bf16 : &f32;
}
