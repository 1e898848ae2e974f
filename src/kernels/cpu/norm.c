/*
 * LayerNorm and RMSNorm over rows of h.
 *
 *   y = (x - mean) rstd gain + bias         (RMSNorm: mean = 0, no bias)
 *
 * Backward, with n = (x - mean) rstd and e = dy gain:
 *   dx = dres + rstd (e - mean(e) - n mean(e n))      (RMSNorm: without mean(e))
 *   dgain += sum over rows of dy n,  dbias += sum over rows of dy
 */
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>

enum { LANES = 32 };

/*
 * Sum of x - shift, or of its square. The lanes are spelled out so that several vectors accumulate
 * side by side: one would wait for the latency of its own additions.
 */
SP_INLINE float row_sum(int n, const float *x, float shift, bool square)
{
    float lane[LANES] = {0};
    int j = 0;

    for (; j + LANES <= n; j += LANES) {
#pragma omp simd
        for (int k = 0; k < LANES; k++)
            lane[k] += (x[j + k] - shift) * (square ? x[j + k] - shift : 1.0f);
    }
    for (int k = 0; j + k < n; k++)
        lane[k] += (x[j + k] - shift) * (square ? x[j + k] - shift : 1.0f);
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

/* Mean and rstd of one row; the variance from centred values, as x may have a large mean. */
SP_CLONES static void row_stats(bool rms, int h, float eps, const float *x, float *stats)
{
    float mean = rms ? 0 : row_sum(h, x, 0, false) / (float)h;
    float square = row_sum(h, x, mean, true);

    stats[0] = mean;
    stats[1] = 1.0f / sqrtf(square / (float)h + eps);
}

SP_CLONES static void row_apply(int h, const float *x, const float *stats, const float *gain,
                                const float *bias, float *y)
{
    float mean = stats[0], rstd = stats[1];

    if (bias) {
#pragma omp simd
        for (int j = 0; j < h; j++)
            y[j] = (x[j] - mean) * rstd * gain[j] + bias[j];
    } else {
#pragma omp simd
        for (int j = 0; j < h; j++)
            y[j] = (x[j] - mean) * rstd * gain[j];
    }
}

void sp_norm(bool rms, int T, int h, float eps, const float *x, const float *gain,
             const float *bias, float *y, float *stats)
{
#pragma omp parallel for if ((size_t)T * (size_t)h > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++) {
        const float *row = x + (size_t)t * (size_t)h;
        float own[2], *st = stats ? stats + 2 * (size_t)t : own;

        row_stats(rms, h, eps, row, st);
        row_apply(h, row, st, gain, bias, y + (size_t)t * (size_t)h);
    }
}

void sp_norm_apply(int T, int h, const float *x, const float *stats, const float *gain,
                   const float *bias, float *y)
{
#pragma omp parallel for if ((size_t)T * (size_t)h > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++)
        row_apply(h, x + (size_t)t * (size_t)h, stats + 2 * (size_t)t, gain, bias,
                  y + (size_t)t * (size_t)h);
}

/* One row; dgain and dbias are this thread's sums, or NULL. */
SP_CLONES static void row_bwd(bool rms, int h, const float *x, const float *stats,
                              const float *gain, const float *dy, const float *dres, float *dx,
                              float *dgain, float *dbias)
{
    float mean = stats[0], rstd = stats[1], sum_e = 0, sum_en = 0;

#pragma omp simd reduction(+ : sum_e, sum_en)
    for (int j = 0; j < h; j++) {
        float e = dy[j] * gain[j];

        sum_e += e;
        sum_en += e * ((x[j] - mean) * rstd);
    }
    sum_e = rms ? 0 : sum_e / (float)h;
    sum_en /= (float)h;
    if (dgain) {
#pragma omp simd
        for (int j = 0; j < h; j++)
            dgain[j] += dy[j] * ((x[j] - mean) * rstd);
    }
    if (dbias) {
#pragma omp simd
        for (int j = 0; j < h; j++)
            dbias[j] += dy[j];
    }
    if (dres) {
#pragma omp simd
        for (int j = 0; j < h; j++)
            dx[j] = dres[j] + rstd * (dy[j] * gain[j] - sum_e - (x[j] - mean) * rstd * sum_en);
    } else {
#pragma omp simd
        for (int j = 0; j < h; j++)
            dx[j] = rstd * (dy[j] * gain[j] - sum_e - (x[j] - mean) * rstd * sum_en);
    }
}

SP_CLONES static void add_partials(size_t n, int threads, const float *part, size_t stride,
                                   float *sum)
{
    for (int k = 0; k < threads; k++) {
        const float *p = part + (size_t)k * stride;

#pragma omp simd
        for (size_t j = 0; j < n; j++)
            sum[j] += p[j];
    }
}

/* Each thread sums the gain and bias gradients of its rows; the sums are added in thread order. */
void sp_norm_bwd(bool rms, int T, int h, const float *x, const float *stats, const float *gain,
                 const float *dy, const float *dres, float *dx, float *dgain, float *dbias)
{
    size_t width = (size_t)h, stride = 2 * ((width + 15) & ~(size_t)15);
    float *part = NULL;

    if (dgain || dbias)
        part = sp_scratch(SP_SCRATCH_TEAM, (size_t)omp_get_max_threads() * stride * sizeof *part);
#pragma omp parallel if ((size_t)T * width > SP_TEAM_WORTH)
    {
        int threads = omp_get_num_threads();
        float *own = part ? part + (size_t)omp_get_thread_num() * stride : NULL;
        size_t lo, hi;

        if (own)
            memset(own, 0, stride * sizeof *own);
        sp_team_share((size_t)T, 1, &lo, &hi);
        for (size_t t = lo; t < hi; t++)
            row_bwd(rms, h, x + t * width, stats + 2 * t, gain, dy + t * width,
                    dres ? dres + t * width : NULL, dx + t * width, dgain ? own : NULL,
                    dbias ? own + stride / 2 : NULL);
#pragma omp barrier
        sp_team_share(width, 16, &lo, &hi);
        if (dgain)
            add_partials(hi - lo, threads, part + lo, stride, dgain + lo);
        if (dbias)
            add_partials(hi - lo, threads, part + stride / 2 + lo, stride, dbias + lo);
    }
}
