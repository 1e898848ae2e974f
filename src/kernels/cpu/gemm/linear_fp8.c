/*
 * Linear layers of the fp8 table: those of bf16, on operands rounded to fp8 (fp8.h). No CPU here
 * multiplies fp8; the rounded numbers are exact in bf16 and so are their products in f32, so the
 * sums are those of a unit that does. Biases, residuals and gradients of biases are not rounded.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include "kernels/fp8.h"

#define K const struct sp_backend *k

/* rows x width numbers of bf16, rows `ld` apart, and where they go, dense. */
struct operand {
    enum sp_fp8_format format;
    size_t rows, width, ld;
    const uint16_t *x;
    uint16_t *to;
};

SP_CLONES static uint32_t largest(size_t n, const uint16_t *x)
{
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        uint32_t size = x[i] & 0x7fffu; /* of bf16: infinities are larger, and NaNs still */

        most = size > most ? size : most;
    }
    return most;
}

SP_INLINE void round_loop(enum sp_fp8_format f, size_t n, int e, const uint16_t *x, uint16_t *y)
{
    const float up = sp_power_of_two(e), down = sp_power_of_two(-e);

#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = (uint16_t)(sp_to_bits(sp_fp8_nearest(f, sp_bf16_value(x[i]) * up) * down) >> 16);
}

SP_CLONES static void round_array(enum sp_fp8_format f, size_t n, int e, const uint16_t *x,
                                  uint16_t *y)
{
    if (f == SP_E4M3)
        round_loop(SP_E4M3, n, e, x, y);
    else
        round_loop(SP_E5M2, n, e, x, y);
}

/* An array with an infinity or a NaN in it has no scale: all of it becomes NaN, and so does all
 * that it is multiplied with. */
static void fill_with_nan(size_t n, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = 0x7fc0;
}

/* Its rows, in pieces that the team shares: without a gap between rows they are one long row. */
static void quantise(const struct operand *o)
{
    enum { PIECE = 4096 };
    const size_t n = o->rows * o->width, width = o->ld == o->width ? PIECE : o->width;
    const size_t pieces = (n + width - 1) / width, ld = o->ld == o->width ? PIECE : o->ld;
    uint32_t most = 0;

#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

#pragma omp for reduction(max : most)
        for (size_t p = 0; p < pieces; p++) {
            uint32_t size = largest(n - p * width < width ? n - p * width : width, o->x + p * ld);

            most = size > most ? size : most;
        }
        sp_team_share(pieces, 1, &lo, &hi);
        for (size_t p = lo; p < hi; p++) {
            size_t here = n - p * width < width ? n - p * width : width;

            if (most >= 0x7f80)
                fill_with_nan(here, o->to + p * width);
            else
                round_array(o->format, here, sp_fp8_exponent(o->format, most), o->x + p * ld,
                            o->to + p * width);
        }
    }
}

/* Rounds two operands, b behind a, into scratch that the next product overwrites. */
static void quantise_both(struct operand *a, struct operand *b)
{
    size_t of_a = a->rows * a->width;

    a->to = sp_scratch(SP_SCRATCH_FP8, (of_a + b->rows * b->width) * sizeof *a->to);
    b->to = a->to + of_a;
    quantise(a);
    quantise(b);
}

static struct operand operand(enum sp_fp8_format f, int rows, int width, int ld, const void *x)
{
    return (struct operand){
        .format = f, .rows = (size_t)rows, .width = (size_t)width, .ld = (size_t)ld, .x = x};
}

static struct operand weights(const struct sp_linear *l)
{
    return operand(SP_E4M3, l->out, l->in, l->in, l->w);
}

static struct operand inputs(const struct sp_linear *l, const void *x)
{
    return operand(SP_E4M3, l->T, l->in, l->in, x);
}

static struct operand gradients(const struct sp_linear *l, const void *dy)
{
    return operand(SP_E5M2, l->T, l->out, sp_linear_ld(l), dy);
}

/* The layer on rounded weights, and *x on rounded inputs. */
static struct sp_linear forward(const struct sp_linear *l, const void **x)
{
    struct operand in = inputs(l, *x), w = weights(l);
    struct sp_linear rounded = *l;

    quantise_both(&in, &w);
    *x = in.to;
    rounded.w = w.to;
    return rounded;
}

/* The layer on rounded weights, and *dy on rounded gradients, which become dense. */
static struct sp_linear backward(const struct sp_linear *l, const void **dy)
{
    struct operand out = gradients(l, *dy), w = weights(l);
    struct sp_linear rounded = *l;

    quantise_both(&out, &w);
    *dy = out.to;
    rounded.w = w.to;
    rounded.ld = 0;
    return rounded;
}

void sp_fp8_linear(K, const struct sp_linear *l, const void *x, void *y)
{
    const struct sp_linear rounded = forward(l, &x);

    sp_bf16_linear(k, &rounded, x, y);
}

void sp_fp8_linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y)
{
    const struct sp_linear rounded = forward(l, &x);

    sp_bf16_linear_add(k, &rounded, x, residual, y);
}

void sp_fp8_linear_act(K, const struct sp_linear *l, enum sp_activation act, const void *x, void *u,
                       void *g)
{
    const struct sp_linear rounded = forward(l, &x);

    sp_bf16_linear_act(k, &rounded, act, x, u, g);
}

void sp_fp8_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate)
{
    const struct sp_linear rounded = backward(l, &dy);

    sp_bf16_linear_dx(k, &rounded, dy, dx, accumulate);
}

void sp_fp8_linear_dx_act(K, const struct sp_linear *l, enum sp_activation act, const void *dy,
                          const void *u, void *du)
{
    const struct sp_linear rounded = backward(l, &dy);

    sp_bf16_linear_dx_act(k, &rounded, act, dy, u, du);
}

void sp_fp8_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                      float *dbias)
{
    struct operand in = inputs(l, x), out = gradients(l, dy);
    struct sp_linear dense = *l;

    quantise_both(&in, &out);
    dense.ld = 0;
    sp_bf16_linear_dw(k, &dense, in.to, out.to, dw, NULL);
    if (dbias)
        sp_column_sums(SP_BF16, l->T, l->out, dy, sp_linear_ld(l), dbias);
}
