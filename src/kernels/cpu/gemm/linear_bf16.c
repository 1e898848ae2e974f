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

/* y(T,out) = x w^T + bias */
static struct sp_gemm_bf16 forward(const struct sp_linear *l)
{
    return (struct sp_gemm_bf16){.trans_b = true,
                                 .m = l->T,
                                 .n = l->out,
                                 .k = l->in,
                                 .lda = l->in,
                                 .ldb = l->in,
                                 .ldc = sp_linear_ld(l),
                                 .type = SP_BF16,
                                 .bias = l->bias != NULL};
}

/* dx(T,in) = dy w */
static struct sp_gemm_bf16 backward(const struct sp_linear *l)
{
    return (struct sp_gemm_bf16){.m = l->T,
                                 .n = l->in,
                                 .k = l->out,
                                 .lda = sp_linear_ld(l),
                                 .ldb = l->in,
                                 .ldc = l->in,
                                 .type = SP_BF16};
}

void sp_bf16_linear(K, const struct sp_linear *l, const void *x, void *y)
{
    const struct sp_gemm_bf16 g = forward(l);

    (void)k;
    sp_gemm_bf16(&g, x, l->w, l->bias, NULL, y);
}

void sp_bf16_linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y)
{
    struct sp_gemm_bf16 g = forward(l);

    (void)k;
    g.addend = true;
    sp_gemm_bf16(&g, x, l->w, l->bias, residual, y);
}

void sp_bf16_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate)
{
    struct sp_gemm_bf16 g = backward(l);

    (void)k;
    g.accumulate = accumulate;
    sp_gemm_bf16(&g, dy, l->w, NULL, NULL, dx);
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

void sp_bf16_linear_act(K, const struct sp_linear *l, enum sp_activation act, const void *x,
                        void *u, void *g)
{
    struct sp_gemm_bf16 product = forward(l);

    (void)k;
    product.type = SP_F32;
    product_finished(l->T, &product, x, l->w, l->bias, &(struct finish){act_rounded, act, u, g});
}

void sp_bf16_linear_dx_act(K, const struct sp_linear *l, enum sp_activation act, const void *dy,
                           const void *u, void *du)
{
    struct sp_gemm_bf16 product = backward(l);

    (void)k;
    product.type = SP_F32;
    product_finished(l->T, &product, dy, l->w, NULL,
                     &(struct finish){act_bwd_rounded, act, (uint16_t *)u, du});
}

/* ---- gradients of parameters: f32 ------------------------------------------------------------- */

void sp_bf16_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                       float *dbias)
{
    const struct sp_gemm_bf16 g = {.trans_a = true,
                                   .m = l->out,
                                   .n = l->in,
                                   .k = l->T,
                                   .lda = sp_linear_ld(l),
                                   .ldb = l->in,
                                   .ldc = l->in,
                                   .type = SP_F32,
                                   .accumulate = !l->first};

    (void)k;
    sp_gemm_bf16(&g, dy, x, NULL, NULL, dw);
    if (dbias)
        sp_column_sums(SP_BF16, l->T, l->out, dy, sp_linear_ld(l), dbias);
}
