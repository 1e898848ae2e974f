/*
 * The head over a part of the vocabulary; other devices have the other rows. The equations are
 * those of cross_entropy.c in two passes, since a softmax needs the sum over all parts.
 *
 *   logit_stats    Z(rows,V) = x w^T;  stats = log(sum e^z) and z[target], of this part
 *   merge_logits   lse = log(sum over parts of e^lse),  loss += sum of lse - z[target]
 *                  except for rows whose target is SP_NO_TARGET, whose z[target] is NaN
 *   merge_stats    the stats of several parts, merged as if they were one
 *   logits_bwd     Z again unless it was kept, dZ = scale (e^(Z - lse) - onehot), dx = dZ w, dw += dZ^T x
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/gemm_bf16.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>
#include <string.h>

/* Z(n,V) = x w^T */
static void logits(enum sp_dtype type, int n, int h, int V, const void *x, const void *w, void *z)
{
    const struct sp_gemm_bf16 to_z = {
        .trans_b = true, .m = n, .n = V, .k = h, .lda = h, .ldb = h, .ldc = V, .type = SP_BF16};

    if (type == SP_BF16)
        sp_gemm_bf16(&to_z, x, w, NULL, NULL, z);
    else
        sp_gemm(false, true, n, V, h, 1, x, h, w, h, 0, z, V);
}

/* A row of logits in f32: in place, or in a copy. */
static float *row_of(enum sp_dtype type, int V, void *z, size_t r)
{
    float *wide;

    if (type == SP_F32)
        return (float *)z + r * (size_t)V;
    wide = sp_scratch(SP_SCRATCH_OWN, (size_t)V * sizeof *wide);
    sp_bf16_widen((size_t)V, (const uint16_t *)z + r * (size_t)V, wide);
    return wide;
}

SP_CLONES static float log_sum(int V, const float *z)
{
    enum { BLOCK = 1024 };
    float max = z[0];
    double sum = 0; /* at least 1, from the largest */

#pragma omp simd reduction(max : max)
    for (int j = 0; j < V; j++)
        max = z[j] > max ? z[j] : max;
    for (int j0 = 0; j0 < V; j0 += BLOCK) {
        int j1 = V - j0 < BLOCK ? V : j0 + BLOCK;
        float part = 0;

#pragma omp simd reduction(+ : part)
        for (int j = j0; j < j1; j++)
            part += sp_exp_softmax(z[j] - max);
        sum += (double)part;
    }
    return max + (float)log1p(sum - 1);
}

SP_CLONES static void gradient(int V, int target, float lse, float scale, float *z)
{
#pragma omp simd
    for (int j = 0; j < V; j++)
        z[j] = sp_exp_softmax(z[j] - lse) * scale;
    if (target >= 0)
        z[target] -= scale;
    else if (target == SP_NO_TARGET)
        memset(z, 0, (size_t)V * sizeof *z);
}

/* The logit of a row's target; 0 if another part has it; NaN, which survives every sum, if the
 * row has no target. */
static float logit_of(int target, const float *z)
{
    return target >= 0 ? z[target] : target == SP_NO_TARGET ? NAN : 0;
}

void sp_cpu_logit_stats(const struct sp_backend *k, int T, int h, int V, int rows, const void *x,
                        const void *w, const int32_t *targets, float *stats, void *scratch)
{
    size_t elem = sp_dtype_bytes(k->dtype);

    for (int t = 0; t < T; t += rows) {
        int n = T - t < rows ? T - t : rows;

        logits(k->dtype, n, h, V, (const char *)x + (size_t)t * (size_t)h * elem, w, scratch);
#pragma omp parallel for if ((size_t)n * (size_t)V > SP_TEAM_WORTH)
        for (int r = 0; r < n; r++) {
            const float *z = row_of(k->dtype, V, scratch, (size_t)r);

            stats[2 * (t + r)] = log_sum(V, z);
            stats[2 * (t + r) + 1] = logit_of(targets[t + r], z);
        }
    }
}

/* Merges n parts of a token: its log-sum-exp and the logit of its target. */
static void merge(int n, const float *const *stats, int t, double *lse, double *target)
{
    double all = (double)stats[0][2 * t], at_target = (double)stats[0][2 * t + 1];

    for (int i = 1; i < n; i++) {
        double part = (double)stats[i][2 * t], max = fmax(all, part);

        all = max + log1p(exp(fmin(all, part) - max));
        at_target += (double)stats[i][2 * t + 1];
    }
    *lse = all;
    *target = at_target;
}

void sp_cpu_merge_stats(const struct sp_backend *k, int T, int n, const float *const *stats,
                        float *merged)
{
    (void)k;
    for (int t = 0; t < T; t++) {
        double lse, target;

        merge(n, stats, t, &lse, &target);
        merged[2 * t] = (float)lse;
        merged[2 * t + 1] = (float)target;
    }
}

void sp_cpu_merge_logits(const struct sp_backend *k, int T, int n, const float *const *stats,
                         float *lse, double *loss)
{
    double sum = 0;

    (void)k;
    for (int t = 0; t < T; t++) {
        double all, at_target;

        merge(n, stats, t, &all, &at_target);
        lse[t] = (float)all;
        sum += isnan(at_target) && !isnan(all) ? 0 : all - at_target;
    }
    if (loss)
        *loss += sum;
}

void sp_cpu_logits_bwd(const struct sp_backend *k, int T, int h, int V, int rows, const void *x,
                       const void *w, const int32_t *targets, const float *lse, float scale,
                       bool kept, void *dx, float *dw, void *scratch)
{
    size_t elem = sp_dtype_bytes(k->dtype), row_bytes = (size_t)h * elem;

    for (int t = 0; t < T; t += rows) {
        int n = T - t < rows ? T - t : rows;
        const void *xt = (const char *)x + (size_t)t * row_bytes;

        if (!kept)
            logits(k->dtype, n, h, V, xt, w, scratch);
#pragma omp parallel for if ((size_t)n * (size_t)V > SP_TEAM_WORTH)
        for (int r = 0; r < n; r++) {
            float *z = row_of(k->dtype, V, scratch, (size_t)r);

            gradient(V, targets[t + r], lse[t + r], scale, z);
            if (k->dtype == SP_BF16)
                sp_bf16_round((size_t)V, z, (uint16_t *)scratch + (size_t)r * (size_t)V);
        }
        k->linear_dx(k, n, h, V, scratch, V, w, (char *)dx + (size_t)t * row_bytes, false);
        k->linear_dw(k, n, h, V, xt, scratch, V, dw, NULL);
    }
}
