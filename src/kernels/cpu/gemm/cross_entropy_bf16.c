/*
 * The head in bf16: the equations of cross_entropy.c. Logits and their gradients are bf16, as a
 * GPU's are; a row is widened once, and its softmax and loss are f32.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

/* n rows of logits from row t on become their gradients, if wanted; loss[r] is that of row r. */
static void row_losses(const struct sp_logits *l, int t, int n, bool gradient, double *loss)
{
    const size_t V = (size_t)l->V;
    uint16_t *z = l->scratch;

#pragma omp parallel for if ((size_t)n * V > SP_TEAM_WORTH)
    for (int r = 0; r < n; r++) {
        float *wide = sp_scratch(SP_SCRATCH_OWN, V * sizeof *wide);
        uint16_t *row = z + (size_t)r * V;

        sp_bf16_widen(V, row, wide);
        loss[r] = sp_row_loss(l->V, l->targets[t + r], gradient, l->scale, wide);
        if (gradient)
            sp_bf16_round(V, wide, row);
    }
}

void sp_bf16_cross_entropy(const struct sp_backend *k, const struct sp_logits *l, double *loss,
                           void *dx, float *dw)
{
    size_t h = (size_t)l->h;
    double *row = sp_scratch(SP_SCRATCH_TEAM, (size_t)l->rows * sizeof *row), sum = 0;

    for (int t = 0; t < l->T; t += l->rows) {
        int n = l->T - t < l->rows ? l->T - t : l->rows;
        struct sp_linear head = {.T = n, .in = l->h, .out = l->V, .w = l->w};
        const uint16_t *x = (const uint16_t *)l->x + (size_t)t * h;

        sp_bf16_linear(k, &head, x, l->scratch);
        row_losses(l, t, n, dx || dw, row);
        for (int r = 0; r < n; r++)
            sum += row[r];
        if (dx)
            sp_bf16_linear_dx(k, &head, l->scratch, (uint16_t *)dx + (size_t)t * h, false);
        if (dw)
            sp_bf16_linear_dw(k, &head, x, l->scratch, dw, NULL);
    }
    *loss += sum;
}
