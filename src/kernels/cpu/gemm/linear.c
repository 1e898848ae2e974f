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

/* y(T,out) = or += x w^T */
static void forward(const struct sp_linear *l, const float *x, float beta, float *y)
{
    sp_gemm(&(struct sp_gemm){.trans_b = true,
                              .m = l->T,
                              .n = l->out,
                              .k = l->in,
                              .lda = l->in,
                              .ldb = l->in,
                              .ldc = sp_linear_ld(l),
                              .alpha = 1,
                              .beta = beta},
            x, l->w, y);
}

void sp_linear(const struct sp_linear *l, const float *x, float *y)
{
    if (l->bias) {
#pragma omp parallel for if ((size_t)l->T * (size_t)l->out > SP_TEAM_WORTH)
        for (int t = 0; t < l->T; t++)
            memcpy(y + (size_t)t * (size_t)sp_linear_ld(l), l->bias, (size_t)l->out * sizeof *y);
    }
    forward(l, x, l->bias ? 1 : 0, y);
}

SP_CLONES static void add_row(int n, const float *x, const float *bias, float *y)
{
    for (int j = 0; j < n; j++)
        y[j] = x[j] + bias[j];
}

void sp_linear_add(const struct sp_linear *l, const float *x, const float *residual, float *y)
{
#pragma omp parallel for if ((size_t)l->T * (size_t)l->out > SP_TEAM_WORTH)
    for (int t = 0; t < l->T; t++) {
        size_t row = (size_t)t * (size_t)l->out;

        if (l->bias)
            add_row(l->out, residual + row, l->bias, y + row);
        else
            memcpy(y + row, residual + row, (size_t)l->out * sizeof *y);
    }
    forward(l, x, 1, y);
}

void sp_linear_dx(const struct sp_linear *l, const float *dy, float *dx, bool accumulate)
{
    sp_gemm(&(struct sp_gemm){.m = l->T,
                              .n = l->in,
                              .k = l->out,
                              .lda = sp_linear_ld(l),
                              .ldb = l->in,
                              .ldc = l->in,
                              .alpha = 1,
                              .beta = accumulate ? 1 : 0},
            dy, l->w, dx);
}

void sp_linear_dw(const struct sp_linear *l, const float *x, const float *dy, float *dw,
                  float *dbias)
{
    sp_gemm(&(struct sp_gemm){.trans_a = true,
                              .m = l->out,
                              .n = l->in,
                              .k = l->T,
                              .lda = sp_linear_ld(l),
                              .ldb = l->in,
                              .ldc = l->in,
                              .alpha = 1,
                              .beta = l->first ? 0 : 1},
            dy, x, dw);
    if (dbias)
        sp_column_sums(SP_F32, l->T, l->out, dy, sp_linear_ld(l), dbias);
}
