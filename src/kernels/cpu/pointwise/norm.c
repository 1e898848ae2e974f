/*
 * LayerNorm and RMSNorm over rows of h.
 *
 *   y = (x - mean) rstd gain + bias         (RMSNorm: mean = 0, no bias)
 *
 * The backward is norm_bwd.c.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include <math.h>

/* One term of a sum: x - shift, or its square. */
SP_INLINE float term(bool square, float x, float shift)
{
    return square ? (x - shift) * (x - shift) : x - shift;
}

/* Sum of x - shift, or of its square; the squares come last, and `next` is asked for meanwhile. */
SP_INLINE float row_sum(enum sp_dtype type, bool square, size_t n, const void *x, float shift,
                        const void *next)
{
    enum { HALF = SP_LANES / 2 };
    const size_t steps = sp_steps(type, SP_LANES);
    struct sp_lanes sum = {{0}};
    size_t j = 0;

    for (; j + SP_LANES <= n; j += SP_LANES) {
        const size_t i = sp_steps(type, j);

        if (square)
            sp_prefetch(sp_from(type, next, j), SP_LANES * sp_dtype_bytes(type));
#pragma omp simd
        for (size_t k = 0; k < steps; k++) {
            struct sp_pair v = sp_load_step(type, x, i + k);

            sum.at[k] += term(square, v.a, shift);
            if (type == SP_BF16)
                sum.at[HALF + k] += term(square, v.b, shift);
        }
    }
    for (; j < n; j++)
        *sp_lane(type, &sum, j) += term(square, sp_load(type, x, j), shift);
    return sp_sum_lanes(type, &sum);
}

/* Mean and rstd of one row; the variance from centred values, as x may have a large mean. */
SP_INLINE void row_stats(enum sp_dtype type, const struct sp_norm *n, const void *x, float *stats,
                         const void *next)
{
    const size_t h = (size_t)n->h;
    float mean = n->rms ? 0 : row_sum(type, false, h, x, 0, next) / (float)h;
    float square = row_sum(type, true, h, x, mean, next);

    stats[0] = mean;
    stats[1] = 1.0f / sqrtf(square / (float)h + n->eps);
}

SP_INLINE void row_apply(enum sp_dtype type, const struct sp_norm *n, const void *x,
                         const float *stats, void *y)
{
    const size_t h = (size_t)n->h;
    const void *gain = n->gain, *bias = n->bias;
    float mean = stats[0], rstd = stats[1];

    if (bias) {
#pragma omp simd
        for (size_t j = 0; j < sp_steps(type, h); j++) {
            struct sp_pair v = sp_load_step(type, x, j);
            struct sp_pair g = sp_load_step(type, gain, j), b = sp_load_step(type, bias, j);

            sp_store_step(type, y, j, (v.a - mean) * rstd * g.a + b.a,
                          (v.b - mean) * rstd * g.b + b.b);
        }
    } else {
#pragma omp simd
        for (size_t j = 0; j < sp_steps(type, h); j++) {
            struct sp_pair v = sp_load_step(type, x, j), g = sp_load_step(type, gain, j);

            sp_store_step(type, y, j, (v.a - mean) * rstd * g.a, (v.b - mean) * rstd * g.b);
        }
    }
    if (sp_odd(type, h)) {
        float last = (sp_load(type, x, h - 1) - mean) * rstd * sp_load(type, gain, h - 1);

        sp_store(type, y, h - 1, bias ? last + sp_load(type, bias, h - 1) : last);
    }
}

/* `rows` of the rows: x, y and stats begin at the first. */
SP_INLINE void norm_rows(enum sp_dtype type, const struct sp_norm *n, size_t rows, const void *x,
                         void *y, float *stats)
{
    const size_t h = (size_t)n->h;

    for (size_t t = 0; t < rows; t++) {
        const void *row = sp_from(type, x, t * h);
        float own[2], *st = stats ? stats + 2 * t : own;

        row_stats(type, n, row, st, t + 1 < rows ? sp_from(type, row, h) : row);
        row_apply(type, n, row, st, sp_to(type, y, t * h));
    }
}

SP_INLINE void apply_rows(enum sp_dtype type, const struct sp_norm *n, size_t rows, const void *x,
                          const float *stats, void *y)
{
    const size_t h = (size_t)n->h;

    for (size_t t = 0; t < rows; t++)
        row_apply(type, n, sp_from(type, x, t * h), stats + 2 * t, sp_to(type, y, t * h));
}

SP_CLONES static void norm_typed_rows(enum sp_dtype type, const struct sp_norm *n, size_t rows,
                                      const void *x, void *y, float *stats)
{
    if (type == SP_BF16)
        norm_rows(SP_BF16, n, rows, x, y, stats);
    else
        norm_rows(SP_F32, n, rows, x, y, stats);
}

SP_CLONES static void apply_typed_rows(enum sp_dtype type, const struct sp_norm *n, size_t rows,
                                       const void *x, const float *stats, void *y)
{
    if (type == SP_BF16)
        apply_rows(SP_BF16, n, rows, x, stats, y);
    else
        apply_rows(SP_F32, n, rows, x, stats, y);
}

void sp_cpu_norm(const struct sp_backend *k, const struct sp_norm *n, const void *x, void *y,
                 float *stats)
{
    enum sp_dtype type = k->dtype;
    size_t width = (size_t)n->h;

#pragma omp parallel if ((size_t)n->T * width > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share((size_t)n->T, 1, &lo, &hi);
        norm_typed_rows(type, n, hi - lo, sp_from(type, x, lo * width), sp_to(type, y, lo * width),
                        stats ? stats + 2 * lo : NULL);
    }
}

void sp_cpu_norm_apply(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                       const float *stats, void *y)
{
    enum sp_dtype type = k->dtype;
    size_t width = (size_t)n->h;

#pragma omp parallel if ((size_t)n->T * width > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share((size_t)n->T, 1, &lo, &hi);
        apply_typed_rows(type, n, hi - lo, sp_from(type, x, lo * width), stats + 2 * lo,
                         sp_to(type, y, lo * width));
    }
}

void sp_norm(const struct sp_norm *n, const float *x, float *y, float *stats)
{
    sp_cpu_norm(sp_cpu_backend(SP_F32), n, x, y, stats);
}

void sp_norm_apply(const struct sp_norm *n, const float *x, const float *stats, float *y)
{
    sp_cpu_norm_apply(sp_cpu_backend(SP_F32), n, x, stats, y);
}
