/*
 * Linear layers, weights [out, in]:
 *
 *   y(T,out) = x(T,in) w^T + bias
 *
 * Backward: dx = dy w, dw += dy^T x, dbias += column sums of dy.
 */
#include "kernels/kernels.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

void sp_linear(int T, int in, int out, const float *x, const float *w, const float *bias, float *y,
               int ldy)
{
    if (bias) {
#pragma omp parallel for if ((size_t)T * (size_t)out > SP_TEAM_WORTH)
        for (int t = 0; t < T; t++)
            memcpy(y + (size_t)t * (size_t)ldy, bias, (size_t)out * sizeof *y);
    }
    sp_gemm(false, true, T, out, in, 1, x, in, w, in, bias ? 1 : 0, y, ldy);
}

SP_CLONES static void add_row(int n, const float *x, const float *bias, float *y)
{
    for (int j = 0; j < n; j++)
        y[j] = x[j] + bias[j];
}

void sp_linear_add(int T, int in, int out, const float *x, const float *w, const float *bias,
                   const float *residual, float *y)
{
#pragma omp parallel for if ((size_t)T * (size_t)out > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++) {
        size_t row = (size_t)t * (size_t)out;

        if (bias)
            add_row(out, residual + row, bias, y + row);
        else
            memcpy(y + row, residual + row, (size_t)out * sizeof *y);
    }
    sp_gemm(false, true, T, out, in, 1, x, in, w, in, 1, y, out);
}

void sp_linear_dx(int T, int in, int out, const float *dy, int lddy, const float *w, float *dx,
                  bool accumulate)
{
    sp_gemm(false, false, T, in, out, 1, dy, lddy, w, in, accumulate ? 1 : 0, dx, in);
}

void sp_linear_dw(int T, int in, int out, const float *x, const float *dy, int lddy, float *dw,
                  float *dbias)
{
    sp_gemm(true, false, out, in, T, 1, dy, lddy, x, in, 1, dw, in);
    if (dbias)
        sp_column_sums(SP_F32, T, out, dy, lddy, dbias);
}
