/*
 * Embedding: x(t,h) = table[ids[t]] + positions[pos0 + t].
 *
 * Backward: the threads share the columns and each takes the tokens in order, so a row that many
 * tokens add to is summed in one order whatever the team.
 */
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

SP_CLONES static void add_rows(int h, const float *a, const float *b, float *sum)
{
#pragma omp simd
    for (int j = 0; j < h; j++)
        sum[j] = a[j] + b[j];
}

void sp_embed(int batch, int len, int h, int pos0, const int32_t *ids, const float *table,
              const float *positions, float *x)
{
    size_t width = (size_t)h;

#pragma omp parallel for if ((size_t)batch * (size_t)len * width > SP_TEAM_WORTH)
    for (int r = 0; r < batch * len; r++) {
        const float *token = table + (size_t)ids[r] * width;

        if (positions)
            add_rows(h, token, positions + (size_t)(pos0 + r % len) * width, x + (size_t)r * width);
        else
            memcpy(x + (size_t)r * width, token, width * sizeof *x);
    }
}

SP_CLONES static void scatter(int rows, int n, size_t ld, const int32_t *ids, const float *dx,
                              float *dtable)
{
    for (int r = 0; r < rows; r++) {
        const float *from = dx + (size_t)r * ld;
        float *to = dtable + (size_t)ids[r] * ld;

#pragma omp simd
        for (int j = 0; j < n; j++)
            to[j] += from[j];
    }
}

SP_CLONES static void scatter_positions(int rows, int len, int n, size_t ld, const float *dx,
                                        float *dpositions)
{
    for (int r = 0; r < rows; r++) {
        const float *from = dx + (size_t)r * ld;
        float *to = dpositions + (size_t)(r % len) * ld;

#pragma omp simd
        for (int j = 0; j < n; j++)
            to[j] += from[j];
    }
}

void sp_embed_bwd(int batch, int len, int h, int pos0, const int32_t *ids, const float *dx,
                  float *dtable, float *dpositions)
{
    size_t width = (size_t)h;

#pragma omp parallel if ((size_t)batch * (size_t)len * width > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(width, 16, &lo, &hi);
        if (lo < hi) {
            scatter(batch * len, (int)(hi - lo), width, ids, dx + lo, dtable + lo);
            if (dpositions)
                scatter_positions(batch * len, len, (int)(hi - lo), width, dx + lo,
                                  dpositions + (size_t)pos0 * width + lo);
        }
    }
}
