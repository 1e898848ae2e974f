/* Sums over whole arrays: y += x, column sums, and the sum of squares. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

SP_INLINE void add_loop(enum sp_dtype type, size_t n, const void *x, void *y)
{
#pragma omp simd
    for (size_t i = 0; i < sp_steps(type, n); i++) {
        struct sp_pair a = sp_load_step(type, x, i), b = sp_load_step(type, y, i);

        sp_store_step(type, y, i, b.a + a.a, b.b + a.b);
    }
    if (sp_odd(type, n))
        sp_store(type, y, n - 1, sp_load(type, y, n - 1) + sp_load(type, x, n - 1));
}

SP_CLONES static void add_array(enum sp_dtype type, size_t n, const void *x, void *y)
{
    if (type == SP_BF16)
        add_loop(SP_BF16, n, x, y);
    else
        add_loop(SP_F32, n, x, y);
}

void sp_cpu_add(const struct sp_backend *k, size_t n, const void *x, void *y)
{
    enum sp_dtype type = k->dtype;

#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        add_array(type, hi - lo, sp_from(type, x, lo), sp_to(type, y, lo));
    }
}

/* At most PIECE elements: the sums stay in the cache as f32, and are rounded at last. */
enum { PIECE = 1024 };

SP_INLINE void widen_add(enum sp_dtype type, size_t n, const void *x, float *sum)
{
#pragma omp simd
    for (size_t j = 0; j < n; j++)
        sum[j] += sp_load(type, x, j);
}

SP_INLINE void add_piece(enum sp_dtype type, size_t n, size_t at, int parts, const void *const *x,
                         void *y)
{
    float sum[PIECE];

    for (size_t j = 0; j < n; j++)
        sum[j] = sp_load(type, y, j);
    for (int i = 0; i < parts; i++)
        widen_add(type, n, sp_from(type, x[i], at), sum);
    for (size_t j = 0; j < n; j++)
        sp_store(type, y, j, sum[j]);
}

SP_CLONES static void add_pieces(enum sp_dtype type, size_t lo, size_t hi, int parts,
                                 const void *const *x, void *y)
{
    for (size_t at = lo; at < hi; at += PIECE) {
        size_t n = hi - at < PIECE ? hi - at : PIECE;

        if (type == SP_BF16)
            add_piece(SP_BF16, n, at, parts, x, sp_to(type, y, at));
        else
            add_piece(SP_F32, n, at, parts, x, sp_to(type, y, at));
    }
}

void sp_cpu_add_parts(const struct sp_backend *k, size_t n, int parts, const void *const *x,
                      void *y)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        add_pieces(k->dtype, lo, hi, parts, x, y);
    }
}

void sp_add(size_t n, const float *x, float *y)
{
    sp_cpu_add(sp_cpu_backend(SP_F32), n, x, y);
}

enum { STRIP = 256 };

/*
 * sum(n) += column sums of T rows, n <= STRIP. Rows go in groups: the error grows with the number
 * of groups plus the size of one, instead of with T.
 */
SP_INLINE void strip_loop(enum sp_dtype type, int T, int n, const void *x, size_t ld, float *sum)
{
    enum { GROUP = 64 };
    float part[STRIP];

    for (int t0 = 0; t0 < T; t0 += GROUP) {
        int t1 = T - t0 < GROUP ? T : t0 + GROUP;

        memset(part, 0, sizeof part);
        for (int t = t0; t < t1; t++) {
            const void *row = sp_from(type, x, (size_t)t * ld);

#pragma omp simd
            for (int j = 0; j < n; j++)
                part[j] += sp_load(type, row, (size_t)j);
        }
#pragma omp simd
        for (int j = 0; j < n; j++)
            sum[j] += part[j];
    }
}

SP_CLONES static void strip_sums(enum sp_dtype type, int T, int n, const void *x, size_t ld,
                                 float *sum)
{
    if (type == SP_BF16)
        strip_loop(SP_BF16, T, n, x, ld, sum);
    else
        strip_loop(SP_F32, T, n, x, ld, sum);
}

void sp_column_sums(enum sp_dtype type, int T, int n, const void *x, int ld, float *sum)
{
#pragma omp parallel if ((size_t)T * (size_t)n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share((size_t)n, 16, &lo, &hi);
        for (size_t j = lo; j < hi; j += STRIP)
            strip_sums(type, T, (int)(hi - j < STRIP ? hi - j : STRIP), sp_from(type, x, j),
                       (size_t)ld, sum + j);
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
