/* From one element type to the other, rounded to the nearest or at random, and copies and zeros by the team. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

SP_CLONES void sp_bf16_round(size_t n, const float *x, uint16_t *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = sp_nearest_bf16_or_nan(x[i]);
}

SP_CLONES void sp_bf16_widen(size_t n, const uint16_t *x, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = sp_bf16_value(x[i]);
}

SP_CLONES static void add_at_random(uint32_t stream, size_t from, size_t to, const float *x,
                                    uint16_t *y)
{
#pragma omp simd
    for (size_t i = from; i < to; i++) {
        float sum = x[i] + sp_bf16_value(y[i]);
        uint32_t u;

        memcpy(&u, &sum, sizeof u);
        y[i] = (uint16_t)(sp_bf16_at_random(u, sp_random_bits(stream, (uint32_t)i)) >> 16);
    }
}

SP_CLONES static void add_widened(size_t n, const uint16_t *x, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += sp_bf16_value(x[i]);
}

void sp_cpu_add_at_random(const struct sp_backend *k, size_t n, uint32_t stream, const float *x,
                          void *y)
{
    if (k->dtype == SP_F32) {
        sp_add(n, x, y);
        return;
    }
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        add_at_random(stream, lo, hi, x, y);
    }
}

void sp_cpu_add_to_f32(const struct sp_backend *k, size_t n, const void *x, float *y)
{
    if (k->dtype == SP_F32) {
        sp_add(n, x, y);
        return;
    }
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        add_widened(hi - lo, sp_from(SP_BF16, x, lo), y + lo);
    }
}

void sp_convert(enum sp_dtype from, enum sp_dtype to, size_t n, const void *x, void *y)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;
        const void *part;

        sp_team_share(n, 32, &lo, &hi);
        part = sp_from(from, x, lo);
        if (from == to)
            memcpy(sp_to(to, y, lo), part, (hi - lo) * sp_dtype_bytes(to));
        else if (to == SP_BF16)
            sp_bf16_round(hi - lo, part, sp_to(to, y, lo));
        else
            sp_bf16_widen(hi - lo, part, sp_to(to, y, lo));
    }
}

void sp_cpu_clear(const struct sp_backend *k, size_t bytes, void *y)
{
    (void)k;
#pragma omp parallel if (bytes > 4 * SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(bytes, 64, &lo, &hi);
        if (lo < hi)
            memset((char *)y + lo, 0, hi - lo);
    }
}

void sp_cpu_copy(const struct sp_backend *k, size_t bytes, const void *x, void *y)
{
    (void)k;
#pragma omp parallel if (bytes > 4 * SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(bytes, 64, &lo, &hi);
        if (lo < hi)
            memcpy((char *)y + lo, (const char *)x + lo, hi - lo);
    }
}

void sp_cpu_copy_rows(const struct sp_backend *k, const struct sp_row_copy *c, const void *x,
                      void *y)
{
    (void)k;
#pragma omp parallel for if (c->n > 1 && c->n * c->bytes > 4 * SP_TEAM_WORTH)
    for (size_t r = 0; r < c->n; r++)
        memcpy((char *)y + r * c->to, (const char *)x + r * c->from, c->bytes);
}
