/* Sums over whole arrays: y += x, and the sum of squares. */
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

SP_CLONES static void add(size_t n, const float *x, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

void sp_add(size_t n, const float *x, float *y)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 16, &lo, &hi);
        add(hi - lo, x + lo, y + lo);
    }
}

enum { LANES = 32, BLOCK = 16384, BLOCKS = 256 };

/* Lanes spelled out, not left to the vector width: the same bits on every machine. */
SP_CLONES static double block_sumsq(size_t n, const float *g)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)g[i + (size_t)k] * (double)g[i + (size_t)k];
    }
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)g[i] * (double)g[i];
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

/* Fixed blocks, whose sums are added in order. */
void sp_sumsq(size_t n, const float *g, double *sum)
{
    size_t blocks = (n + BLOCK - 1) / BLOCK;

    for (size_t b0 = 0; b0 < blocks; b0 += BLOCKS) {
        size_t b1 = blocks - b0 < BLOCKS ? blocks : b0 + BLOCKS;
        double part[BLOCKS];

#pragma omp parallel for if (b1 - b0 > 1)
        for (size_t b = b0; b < b1; b++) {
            size_t at = b * BLOCK;

            part[b - b0] = block_sumsq(n - at < BLOCK ? n - at : BLOCK, g + at);
        }
        for (size_t b = b0; b < b1; b++)
            *sum += part[b - b0];
    }
}
