/*
 * GELU in the tanh form of GPT-2. As 0.5 (1 + tanh z) = 1 / (1 + e^-2z),
 *
 *   y = u S,  S = 1 / (1 + e^-2z),  z = sqrt(2/pi) (u + 0.044715 u^3)
 *
 * Backward: du = dy (S + u S (1 - S) 2 z'), z' = sqrt(2/pi) (1 + 3 0.044715 u^2),
 * with 1 - S = e^-2z S, which does not cancel.
 */
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

#define TWICE_ROOT 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CUBIC 0.044715f

SP_CLONES static void forward(size_t n, const float *u, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float v = u[i];
        float e = sp_exp_sigmoid(-TWICE_ROOT * v * (1.0f + CUBIC * v * v));

        y[i] = v / (1.0f + e);
    }
}

SP_CLONES static void backward(size_t n, const float *u, const float *dy, float *du)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float v = u[i], q = v * v;
        float e = sp_exp_sigmoid(-TWICE_ROOT * v * (1.0f + CUBIC * q));
        float s = 1.0f / (1.0f + e);

        du[i] = dy[i] * (s + v * (s * (e * s)) * TWICE_ROOT * (1.0f + 3 * CUBIC * q));
    }
}

void sp_gelu(size_t n, const float *u, float *y)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 16, &lo, &hi);
        forward(hi - lo, u + lo, y + lo);
    }
}

void sp_gelu_bwd(size_t n, const float *u, const float *dy, float *du)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 16, &lo, &hi);
        backward(hi - lo, u + lo, dy + lo, du + lo);
    }
}
