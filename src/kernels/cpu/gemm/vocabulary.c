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

/* Some of the rows. */
struct rows {
    struct sp_linear head; /* Z = x w^T of these rows */
    const void *x;
};

static struct rows rows_from(const struct sp_backend *k, const struct sp_logits *l, int first)
{
    int n = l->T - first < l->rows ? l->T - first : l->rows;

    return (struct rows){.head = {.T = n, .in = l->h, .out = l->V, .w = l->w},
                         .x = (const char *)l->x +
                              (size_t)first * (size_t)l->h * sp_dtype_bytes(k->dtype)};
}

static void logits(enum sp_dtype type, const struct rows *c, void *z)
{
    const struct sp_linear *l = &c->head;
    const struct sp_gemm_bf16 to_z = {.trans_b = true,
                                      .m = l->T,
                                      .n = l->out,
                                      .k = l->in,
                                      .lda = l->in,
                                      .ldb = l->in,
                                      .ldc = l->out,
                                      .type = SP_BF16};

    if (type == SP_BF16)
        sp_gemm_bf16(&to_z, c->x, l->w, NULL, NULL, z);
    else
        sp_linear(l, c->x, z);
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

void sp_cpu_logit_stats(const struct sp_backend *k, const struct sp_logits *l, float *stats)
{
    for (int t = 0; t < l->T; t += l->rows) {
        struct rows c = rows_from(k, l, t);

        logits(k->dtype, &c, l->scratch);
#pragma omp parallel for if ((size_t)c.head.T * (size_t)l->V > SP_TEAM_WORTH)
        for (int r = 0; r < c.head.T; r++) {
            const float *z = row_of(k->dtype, l->V, l->scratch, (size_t)r);

            stats[2 * (t + r)] = log_sum(l->V, z);
            stats[2 * (t + r) + 1] = logit_of(l->targets[t + r], z);
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

void sp_cpu_logits_bwd(const struct sp_backend *k, const struct sp_logits *l, const float *lse,
                       bool kept, void *dx, float *dw)
{
    size_t V = (size_t)l->V, row_bytes = (size_t)l->h * sp_dtype_bytes(k->dtype);

    for (int t = 0; t < l->T; t += l->rows) {
        struct rows c = rows_from(k, l, t);

        if (!kept)
            logits(k->dtype, &c, l->scratch);
#pragma omp parallel for if ((size_t)c.head.T * V > SP_TEAM_WORTH)
        for (int r = 0; r < c.head.T; r++) {
            float *z = row_of(k->dtype, l->V, l->scratch, (size_t)r);

            gradient(l->V, l->targets[t + r], lse[t + r], l->scale, z);
            if (k->dtype == SP_BF16)
                sp_bf16_round(V, z, (uint16_t *)l->scratch + (size_t)r * V);
        }
        k->linear_dx(k, &c.head, l->scratch, (char *)dx + (size_t)t * row_bytes, false);
        k->linear_dw(k, &c.head, c.x, l->scratch, dw, NULL);
    }
}
