/*
 * bf16 products where no unit computes them: blocks are widened into scratch that stays in a cache,
 * multiplied by sp_gemm, and rounded. That takes less time than a library's emulation of the bf16
 * instructions, and less memory than f32 copies of whole operands.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "kernels/cpu/gemm/gemm_bf16.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

#ifdef HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>

static bool may_use(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa; /* each has the bits of those it includes */
}

enum sp_bf16_unit sp_cpu_bf16_unit(void)
{
    return may_use(dnnl_cpu_isa_avx512_core_amx)    ? SP_BF16_AMX
           : may_use(dnnl_cpu_isa_avx512_core_bf16) ? SP_BF16_AVX512
                                                    : SP_BF16_THROUGH_F32;
}
#else
enum sp_bf16_unit sp_cpu_bf16_unit(void)
{
    return SP_BF16_THROUGH_F32;
}

void sp_gemm_bf16_native(const struct sp_gemm_bf16 *g, const void *A, const void *B,
                         const void *bias, const void *addend, void *C)
{
    sp_gemm_bf16_widened(g, A, B, bias, addend, C);
}
#endif

/* Sides of a block: what is widened for it is a small part of its product's time. */
enum { M_BLOCK = 512, N_BLOCK = 1024, K_BLOCK = 2048 };

static int at_most(int left, int block)
{
    return left < block ? left : block;
}

/* A part of a matrix. */
struct block {
    int row, column, rows, width;
};

/* to(rows,width), dense = the block of x */
static void widen_block(const uint16_t *x, int ld, const struct block b, float *to)
{
#pragma omp parallel for if ((size_t)b.rows * (size_t)b.width > SP_TEAM_WORTH)
    for (int r = 0; r < b.rows; r++)
        sp_bf16_widen((size_t)b.width, x + (size_t)(b.row + r) * (size_t)ld + (size_t)b.column,
                      to + (size_t)r * (size_t)b.width);
}

/* A block of C before the product: what it accumulates onto, addend and bias. */
static void start_block(const struct sp_gemm_bf16 *g, const struct block b, const uint16_t *bias,
                        const uint16_t *addend, const void *C, float *sum)
{
    const size_t n = (size_t)b.width;

#pragma omp parallel for if ((size_t)b.rows * n > SP_TEAM_WORTH)
    for (int r = 0; r < b.rows; r++) {
        size_t at = (size_t)(b.row + r) * (size_t)g->ldc + (size_t)b.column;
        float *row = sum + (size_t)r * n;

        memset(row, 0, n * sizeof *row);
        if (g->accumulate && g->type == SP_F32)
            memcpy(row, (const float *)C + at, n * sizeof *row);
        else if (g->accumulate)
            sp_bf16_widen(n, (const uint16_t *)C + at, row);
        else if (g->addend)
            sp_bf16_widen(n, addend + (size_t)(b.row + r) * (size_t)g->n + (size_t)b.column, row);
        for (int c = 0; g->bias && c < b.width; c++)
            row[c] += sp_bf16_value(bias[b.column + c]);
    }
}

static void end_block(const struct sp_gemm_bf16 *g, const struct block b, const float *sum, void *C)
{
    const size_t n = (size_t)b.width;

#pragma omp parallel for if ((size_t)b.rows * n > SP_TEAM_WORTH)
    for (int r = 0; r < b.rows; r++) {
        size_t at = (size_t)(b.row + r) * (size_t)g->ldc + (size_t)b.column;
        const float *row = sum + (size_t)r * n;

        if (g->type == SP_F32)
            memcpy((float *)C + at, row, n * sizeof *row);
        else
            sp_bf16_round(n, row, (uint16_t *)C + at);
    }
}

void sp_gemm_bf16_widened(const struct sp_gemm_bf16 *g, const void *A, const void *B,
                          const void *bias, const void *addend, void *C)
{
    size_t mb = (size_t)at_most(g->m, M_BLOCK), nb = (size_t)at_most(g->n, N_BLOCK);
    size_t kb = (size_t)at_most(g->k, K_BLOCK);
    float *a, *b, *c;

    if (g->m <= 0 || g->n <= 0)
        return;
    a = sp_scratch(SP_SCRATCH_PRODUCT, (mb * kb + kb * nb + mb * nb) * sizeof *a);
    b = a + mb * kb;
    c = b + kb * nb;
    for (int j = 0; j < g->n; j += N_BLOCK)
        for (int i = 0; i < g->m; i += M_BLOCK) {
            int m = at_most(g->m - i, M_BLOCK), n = at_most(g->n - j, N_BLOCK);
            const struct block result = {i, j, m, n};

            start_block(g, result, bias, addend, C, c);
            for (int l = 0; l < g->k; l += K_BLOCK) {
                int k = at_most(g->k - l, K_BLOCK);
                bool ta = g->trans_a, tb = g->trans_b;

                widen_block(A, g->lda, ta ? (struct block){l, i, k, m} : (struct block){i, l, m, k},
                            a);
                widen_block(B, g->ldb, tb ? (struct block){j, l, n, k} : (struct block){l, j, k, n},
                            b);
                sp_gemm(&(struct sp_gemm){.trans_a = ta,
                                          .trans_b = tb,
                                          .m = m,
                                          .n = n,
                                          .k = k,
                                          .lda = ta ? m : k,
                                          .ldb = tb ? k : n,
                                          .ldc = n,
                                          .alpha = 1,
                                          .beta = 1},
                        a, b, c);
            }
            end_block(g, result, c, C);
        }
}

void sp_gemm_bf16(const struct sp_gemm_bf16 *g, const void *A, const void *B, const void *bias,
                  const void *addend, void *C)
{
    if (g->m <= 0 || g->n <= 0)
        return;
    if (g->k > 0 && sp_cpu_bf16_unit() != SP_BF16_THROUGH_F32)
        sp_gemm_bf16_native(g, A, B, bias, addend, C);
    else
        sp_gemm_bf16_widened(g, A, B, bias, addend, C);
}
