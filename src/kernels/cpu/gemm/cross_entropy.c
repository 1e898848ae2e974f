/*
 * The head: logits, cross-entropy and both gradients, a few rows of logits at a time.
 *
 *   Z(rows,V) = x w^T,  loss = sum of log(sum e^z) - z[target]
 *
 * A row whose target is SP_NO_TARGET has no loss and no gradient.
 *
 * Backward, in place of the logits: dZ = scale (softmax(Z) - onehot), dx = dZ w, dw += dZ^T x.
 *
 * Logits and their gradients are of the table's type, as on a GPU; a row of bf16 is widened once, and
 * its softmax and loss are f32.
 *
 * Over a part of the vocabulary, other devices have the other rows of w. Then there are two passes,
 * since a softmax needs the sum over all parts:
 *
 *   logit_stats    Z(rows,V) = x w^T;  stats = log(sum e^z) and z[target], of this part
 *   merge_logits   lse = log(sum over parts of e^lse),  loss += sum of lse - z[target]
 *                  except for rows whose target is SP_NO_TARGET, whose z[target] is NaN
 *   merge_stats    the stats of several parts, merged as if they were one
 *   logits_bwd     Z again unless it was kept, dZ = scale (e^(Z - lse) - onehot), dx = dZ w,
 *                  dw += dZ^T x
 */
#include "kernels/cpu/cpu.h"
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

/* Writes a row back that row_of gave. */
static void put_row(enum sp_dtype type, int V, const float *row, void *z, size_t r)
{
    if (type == SP_BF16)
        sp_bf16_round((size_t)V, row, (uint16_t *)z + r * (size_t)V);
}

/* ---- over the whole vocabulary ------------------------------------------------------------------ */

/* z(V) = scale (softmax(z) - onehot) if `gradient`, else z is lost. Returns -log
 * softmax(z)[target]. */
SP_CLONES static double row_loss(int V, int target, bool gradient, float scale, float *z)
{
    enum { BLOCK = 1024 };
    float max = z[0], at_target, factor;
    double sum = 0;

    if (target == SP_NO_TARGET) {
        memset(z, 0, (size_t)V * sizeof *z);
        return 0;
    }
    at_target = z[target];
#pragma omp simd reduction(max : max)
    for (int j = 0; j < V; j++)
        max = z[j] > max ? z[j] : max;
    for (int j0 = 0; j0 < V; j0 += BLOCK) {
        int j1 = V - j0 < BLOCK ? V : j0 + BLOCK;
        float part = 0;

        if (gradient) {
#pragma omp simd reduction(+ : part)
            for (int j = j0; j < j1; j++) {
                z[j] = sp_exp_softmax(z[j] - max);
                part += z[j];
            }
        } else {
#pragma omp simd reduction(+ : part)
            for (int j = j0; j < j1; j++)
                part += sp_exp_softmax(z[j] - max);
        }
        sum += (double)part;
    }
    if (gradient) {
        factor = (float)((double)scale / sum);
#pragma omp simd
        for (int j = 0; j < V; j++)
            z[j] *= factor;
        z[target] -= scale;
    }
    return log(sum) + (double)max - (double)at_target;
}

void sp_cpu_cross_entropy(const struct sp_backend *k, const struct sp_logits *l, double *loss,
                          void *dx, float *dw)
{
    size_t row_bytes = (size_t)l->h * sp_dtype_bytes(k->dtype);
    double *row = sp_scratch(SP_SCRATCH_TEAM, (size_t)l->rows * sizeof *row), sum = 0;
    bool gradient = dx || dw;

    for (int t = 0; t < l->T; t += l->rows) {
        struct rows c = rows_from(k, l, t);

        k->linear(k, &c.head, c.x, l->scratch);
#pragma omp parallel for if ((size_t)c.head.T * (size_t)l->V > SP_TEAM_WORTH)
        for (int r = 0; r < c.head.T; r++) {
            float *z = row_of(k->dtype, l->V, l->scratch, (size_t)r);

            row[r] = row_loss(l->V, l->targets[t + r], gradient, l->scale, z);
            if (gradient)
                put_row(k->dtype, l->V, z, l->scratch, (size_t)r);
        }
        for (int r = 0; r < c.head.T; r++)
            sum += row[r];
        if (dx)
            k->linear_dx(k, &c.head, l->scratch, (char *)dx + (size_t)t * row_bytes, false);
        if (dw)
            k->linear_dw(k, &c.head, c.x, l->scratch, dw, NULL);
    }
    *loss += sum;
}

void sp_cross_entropy(const struct sp_logits *l, double *loss, float *dx, float *dw)
{
    sp_cpu_cross_entropy(sp_cpu_backend(SP_F32), l, loss, dx, dw);
}

/* ---- over a part of it -------------------------------------------------------------------------- */

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

        k->linear(k, &c.head, c.x, l->scratch);
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
            k->linear(k, &c.head, c.x, l->scratch);
#pragma omp parallel for if ((size_t)c.head.T * V > SP_TEAM_WORTH)
        for (int r = 0; r < c.head.T; r++) {
            float *z = row_of(k->dtype, l->V, l->scratch, (size_t)r);

            gradient(l->V, l->targets[t + r], lse[t + r], l->scale, z);
            put_row(k->dtype, l->V, z, l->scratch, (size_t)r);
        }
        k->linear_dx(k, &c.head, l->scratch, (char *)dx + (size_t)t * row_bytes, false);
        k->linear_dw(k, &c.head, c.x, l->scratch, dw, NULL);
    }
}
