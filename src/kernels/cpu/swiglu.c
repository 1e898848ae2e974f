/*
 * SwiGLU on rows that hold gate g, then up p:
 *
 *   y = g S p,  S = 1 / (1 + e^-g)
 *
 * Backward: dg = dy p (S + g S (1 - S)), dp = dy g S, with 1 - S = e^-g S.
 */
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

SP_CLONES static void forward(int f, const float *gate, const float *up, float *y)
{
#pragma omp simd
    for (int i = 0; i < f; i++)
        y[i] = gate[i] / (1.0f + sp_exp_sigmoid(-gate[i])) * up[i];
}

SP_CLONES static void backward(int f, const float *gate, const float *up, const float *dy,
                               float *dgate, float *dup)
{
#pragma omp simd
    for (int i = 0; i < f; i++) {
        float g = gate[i], p = up[i], d = dy[i];
        float e = sp_exp_sigmoid(-g), s = 1.0f / (1.0f + e);

        dgate[i] = d * p * (s + g * (s * (e * s)));
        dup[i] = d * g * s;
    }
}

void sp_swiglu(int T, int f, const float *u, float *y)
{
    size_t width = (size_t)f;

#pragma omp parallel for if ((size_t)T * width > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++) {
        const float *row = u + (size_t)t * 2 * width;

        forward(f, row, row + width, y + (size_t)t * width);
    }
}

void sp_swiglu_bwd(int T, int f, const float *u, const float *dy, float *du)
{
    size_t width = (size_t)f;

#pragma omp parallel for if ((size_t)T * width > SP_TEAM_WORTH)
    for (int t = 0; t < T; t++) {
        const float *row = u + (size_t)t * 2 * width;
        float *drow = du + (size_t)t * 2 * width;

        backward(f, row, row + width, dy + (size_t)t * width, drow, drow + width);
    }
}
