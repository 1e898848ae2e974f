/*
 * The head in bf16: the equations of cross_entropy.c. Logits and their gradients are bf16, as a
 * GPU's are; a row is widened once, and its softmax and loss are f32.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/gemm_bf16.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

/* Rows of logits become their gradients; loss[r] is that of row r. */
static void losses(int n, int V, const int32_t *targets, bool gradient, float scale, uint16_t *z,
                   double *loss)
{
#pragma omp parallel for if ((size_t)n * (size_t)V > SP_TEAM_WORTH)
    for (int r = 0; r < n; r++) {
        float *wide = sp_scratch(SP_SCRATCH_OWN, (size_t)V * sizeof *wide);
        uint16_t *row = z + (size_t)r * (size_t)V;

        sp_bf16_widen((size_t)V, row, wide);
        loss[r] = sp_row_loss(V, targets[r], gradient, scale, wide);
        if (gradient)
            sp_bf16_round((size_t)V, wide, row);
    }
}

void sp_bf16_cross_entropy(const struct sp_backend *k, int T, int h, int V, int rows, const void *x,
                           const void *w, const int32_t *targets, float scale, double *loss,
                           void *dx, float *dw, void *scratch)
{
    struct sp_gemm_bf16 to_z = {
        .trans_b = true, .n = V, .k = h, .lda = h, .ldb = h, .ldc = V, .type = SP_BF16};
    struct sp_gemm_bf16 to_dx = {.n = h, .k = V, .lda = V, .ldb = h, .ldc = h, .type = SP_BF16};
    struct sp_gemm_bf16 to_dw = {.trans_a = true,
                                 .m = V,
                                 .n = h,
                                 .lda = V,
                                 .ldb = h,
                                 .ldc = h,
                                 .type = SP_F32,
                                 .accumulate = true};
    double *row = sp_scratch(SP_SCRATCH_TEAM, (size_t)rows * sizeof *row), sum = 0;

    (void)k;
    for (int t = 0; t < T; t += rows) {
        int n = to_z.m = to_dx.m = to_dw.k = T - t < rows ? T - t : rows;
        const uint16_t *xt = (const uint16_t *)x + (size_t)t * (size_t)h;

        sp_gemm_bf16(&to_z, xt, w, NULL, NULL, scratch);
        losses(n, V, targets + t, dx || dw, scale, scratch, row);
        for (int r = 0; r < n; r++)
            sum += row[r];
        if (dx)
            sp_gemm_bf16(&to_dx, scratch, w, NULL, NULL, (uint16_t *)dx + (size_t)t * (size_t)h);
        if (dw)
            sp_gemm_bf16(&to_dw, scratch, xt, NULL, NULL, dw);
    }
    *loss += sum;
}
