/*
 * The head: logits, cross-entropy and both gradients, a few rows of logits at a time.
 *
 *   Z(rows,V) = x w^T,  loss = sum of log(sum e^z) - z[target]
 *
 * A row whose target is SP_NO_TARGET has no loss and no gradient.
 *
 * Backward, in place of the logits: dZ = scale (softmax(Z) - onehot), dx = dZ w, dw += dZ^T x.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>
#include <string.h>

SP_CLONES double sp_row_loss(int V, int target, bool gradient, float scale, float *z)
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

void sp_cross_entropy(const struct sp_logits *l, double *loss, float *dx, float *dw)
{
    int h = l->h, V = l->V;
    double *row = sp_scratch(SP_SCRATCH_TEAM, (size_t)l->rows * sizeof *row);
    double sum = 0;
    float *z = l->scratch;

    for (int t = 0; t < l->T; t += l->rows) {
        int n = l->T - t < l->rows ? l->T - t : l->rows;
        struct sp_linear head = {.T = n, .in = h, .out = V, .w = l->w};
        const float *x = (const float *)l->x + (size_t)t * (size_t)h;

        sp_linear(&head, x, z);
#pragma omp parallel for if ((size_t)n * (size_t)V > SP_TEAM_WORTH)
        for (int r = 0; r < n; r++)
            row[r] =
                sp_row_loss(V, l->targets[t + r], dx || dw, l->scale, z + (size_t)r * (size_t)V);
        for (int r = 0; r < n; r++)
            sum += row[r];
        if (dx)
            sp_linear_dx(&head, z, dx + (size_t)t * (size_t)h, false);
        if (dw)
            sp_linear_dw(&head, x, z, dw, NULL);
    }
    *loss += sum;
}
