/*
 * The CPU's tables. Kernels that stream through memory, attention and the head read and write either
 * type of element; products are of the type: those of kernels.h for f32, those of linear_bf16.c for
 * bf16, those of linear_fp8.c for fp8, whose elements are bf16.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include <math.h>

#define K const struct sp_backend *k

/* ---- of either type --------------------------------------------------------------------- */

static void add_f32(K, size_t n, const float *x, float *y)
{
    (void)k;
    sp_add(n, x, y);
}

static void sumsq(K, size_t n, const float *g, double *sum)
{
    (void)k;
    sp_sumsq(n, g, sum);
}

static void round_to(K, size_t n, const float *x, void *y)
{
    sp_convert(SP_F32, k->dtype, n, x, y);
}

static size_t first_not_finite(K, enum sp_dtype dtype, const void *x, size_t n)
{
    (void)k;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(sp_load(dtype, x, i)))
            return i;
    return n;
}

/* ---- products in f32 --------------------------------------------------------------------- */

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

/* ---- the tables -------------------------------------------------------------------------- */

/* Products have `prefix` before their names. */
#define TABLE(type, of_products, prefix)                                                           \
    {                                                                                              \
        .name = "cpu", .dtype = type, .products = of_products, .linear = prefix##linear,           \
        .linear_add = prefix##linear_add, .linear_act = prefix##linear_act,                        \
        .linear_dx = prefix##linear_dx, .linear_dx_act = prefix##linear_dx_act,                    \
        .linear_dw = prefix##linear_dw, .norm = sp_cpu_norm, .norm_apply = sp_cpu_norm_apply,      \
        .norm_bwd = sp_cpu_norm_bwd, .rope = sp_cpu_rope, .attention = sp_cpu_attention,           \
        .attention_merge = sp_cpu_attention_merge, .attention_bwd = sp_cpu_attention_bwd,          \
        .act = sp_cpu_activation, .gated = sp_cpu_gated, .gated_bwd = sp_cpu_gated_bwd,            \
        .embed = sp_cpu_embed, .embed_bwd = sp_cpu_embed_bwd,                                      \
        .cross_entropy = sp_cpu_cross_entropy, .logit_stats = sp_cpu_logit_stats,                  \
        .merge_logits = sp_cpu_merge_logits, .merge_stats = sp_cpu_merge_stats,                    \
        .logits_bwd = sp_cpu_logits_bwd, .add_f32 = add_f32, .add = sp_cpu_add,                    \
        .add_parts = sp_cpu_add_parts, .add_at_random = sp_cpu_add_at_random,                      \
        .add_to_f32 = sp_cpu_add_to_f32, .sumsq = sumsq, .adamw = sp_cpu_adamw, .round = round_to, \
        .clear = sp_cpu_clear, .copy = sp_cpu_copy, .copy_rows = sp_cpu_copy_rows,                 \
        .first_not_finite = first_not_finite,                                                      \
    }

static const struct sp_backend f32 = TABLE(SP_F32, SP_F32, f32_);
static const struct sp_backend bf16 = TABLE(SP_BF16, SP_BF16, sp_bf16_);
static const struct sp_backend fp8 = TABLE(SP_BF16, SP_FP8, sp_fp8_);

const struct sp_backend *sp_cpu_backend(enum sp_dtype dtype)
{
    return dtype == SP_FP8 ? &fp8 : dtype == SP_BF16 ? &bf16 : &f32;
}
