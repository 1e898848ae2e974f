/*
 * Linear layers of the bf16 table: equations and shapes are those of backend.h. Bias and residual
 * are added to the f32 sums before these are rounded. An activation works on sums that are not yet
 * rounded, a few rows at a time, while they are in a cache.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/gemm_bf16.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"

#define K const struct sp_backend *k

void sp_bf16_linear(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                    void *y, int ldy)
{
    const struct sp_gemm_bf16 g = {.trans_b = true,
                                   .m = T,
                                   .n = out,
                                   .k = in,
                                   .lda = in,
                                   .ldb = in,
                                   .ldc = ldy,
                                   .type = SP_BF16,
                                   .bias = bias != NULL};

    (void)k;
    sp_gemm_bf16(&g, x, w, bias, NULL, y);
}

void sp_bf16_linear_add(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                        const void *residual, void *y)
{
    const struct sp_gemm_bf16 g = {.trans_b = true,
                                   .m = T,
                                   .n = out,
                                   .k = in,
                                   .lda = in,
                                   .ldb = in,
                                   .ldc = out,
                                   .type = SP_BF16,
                                   .bias = bias != NULL,
                                   .addend = true};

    (void)k;
    sp_gemm_bf16(&g, x, w, bias, residual, y);
}

void sp_bf16_linear_dx(K, int T, int in, int out, const void *dy, int lddy, const void *w, void *dx,
                       bool accumulate)
{
    const struct sp_gemm_bf16 g = {.m = T,
                                   .n = in,
                                   .k = out,
                                   .lda = lddy,
                                   .ldb = in,
                                   .ldc = in,
                                   .type = SP_BF16,
                                   .accumulate = accumulate};

    (void)k;
    sp_gemm_bf16(&g, dy, w, NULL, NULL, dx);
}

/* ---- with an activation ----------------------------------------------------------------------- */

enum { BLOCK = 2048, SUM_BYTES = 4 << 20 };

/* Rows whose f32 sums fit SUM_BYTES, in whole tiles of a product, about equally many each time. */
static int rows_at_once(int T, int width)
{
    const int tile = 64;
    int most = SUM_BYTES / (int)sizeof(float) / width / tile * tile, parts;

    most = most > tile ? most : tile;
    parts = (T + most - 1) / most;
    return parts > 1 ? ((T + parts - 1) / parts + tile - 1) / tile * tile : T;
}

/* Turns the sums of a product into `out`; the forward writes u, the backward reads it. */
typedef void finish_t(enum sp_activation act, size_t n, const float *sum, uint16_t *u,
                      uint16_t *out);

/* u, g = sum, act(sum) */
static void act_rounded(enum sp_activation act, size_t n, const float *sum, uint16_t *u,
                        uint16_t *g)
{
    float y[BLOCK];

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t part = n - i < BLOCK ? n - i : BLOCK;

        sp_bf16_round(part, sum + i, u + i);
        sp_activation(act, part, sum + i, y);
        sp_bf16_round(part, y, g + i);
    }
}

/* forward: g = act(u)      backward: du = act'(u) sum */
static void act_bwd_rounded(enum sp_activation act, size_t n, const float *sum, uint16_t *u,
                            uint16_t *du)
{
    float wide[BLOCK];

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t part = n - i < BLOCK ? n - i : BLOCK;

        sp_bf16_widen(part, u + i, wide);
        sp_activation_bwd(act, part, wide, sum + i, wide);
        sp_bf16_round(part, wide, du + i);
    }
}

struct finish {
    finish_t *call;
    enum sp_activation act;
    uint16_t *u, *out;
};

/* out(T,n) = finish(x(T,k) w + bias), a few rows at a time, so that their f32 sums stay in the
 * caches. */
static void product_finished(int T, struct sp_gemm_bf16 *product, const uint16_t *x, const void *w,
                             const void *bias, const struct finish *f)
{
    size_t width = (size_t)product->n;
    int rows = rows_at_once(T, product->n);
    float *sum = sp_scratch(SP_SCRATCH_TEAM, (size_t)rows * width * sizeof *sum);

    for (int t = 0; t < T; t += rows) {
        size_t at = (size_t)t * width, n;

        product->m = T - t < rows ? T - t : rows;
        n = (size_t)product->m * width;
        sp_gemm_bf16(product, x + (size_t)t * (size_t)product->k, w, bias, NULL, sum);
#pragma omp parallel if (n > SP_TEAM_WORTH)
        {
            size_t lo, hi;

            sp_team_share(n, 64, &lo, &hi);
            f->call(f->act, hi - lo, sum + lo, f->u + at + lo, f->out + at + lo);
        }
    }
}

void sp_bf16_linear_act(K, enum sp_activation act, int T, int in, int out, const void *x,
                        const void *w, const void *bias, void *u, void *g)
{
    struct sp_gemm_bf16 product = {.trans_b = true,
                                   .n = out,
                                   .k = in,
                                   .lda = in,
                                   .ldb = in,
                                   .ldc = out,
                                   .type = SP_F32,
                                   .bias = bias != NULL};

    (void)k;
    product_finished(T, &product, x, w, bias, &(struct finish){act_rounded, act, u, g});
}

void sp_bf16_linear_dx_act(K, enum sp_activation act, int T, int in, int out, const void *dy,
                           const void *w, const void *u, void *du)
{
    struct sp_gemm_bf16 product = {
        .n = in, .k = out, .lda = out, .ldb = in, .ldc = in, .type = SP_F32};

    (void)k;
    product_finished(T, &product, dy, w, NULL,
                     &(struct finish){act_bwd_rounded, act, (uint16_t *)u, du});
}

/* ---- gradients of parameters: f32 ------------------------------------------------------------- */

void sp_bf16_linear_dw(K, int T, int in, int out, const void *x, const void *dy, int lddy,
                       float *dw, float *dbias)
{
    const struct sp_gemm_bf16 g = {.trans_a = true,
                                   .m = out,
                                   .n = in,
                                   .k = T,
                                   .lda = lddy,
                                   .ldb = in,
                                   .ldc = in,
                                   .type = SP_F32,
                                   .accumulate = true};

    (void)k;
    sp_gemm_bf16(&g, dy, x, NULL, NULL, dw);
    if (dbias)
        sp_column_sums(SP_BF16, T, out, dy, lddy, dbias);
}
