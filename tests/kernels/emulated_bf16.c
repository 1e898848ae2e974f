#include "emulated_bf16.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "sp_error.h"
#include <errno.h>
#include <stdlib.h>

#define K const struct sp_backend *k

/* The f32 copies of one call. */
struct copies {
    float *at[8];
    int n;
};

static float *new_copy(struct copies *c, size_t n)
{
    float *x = malloc(n ? n * sizeof *x : 1);

    if (!x || c->n == (int)(sizeof c->at / sizeof *c->at)) {
        sp_error(ENOMEM, "kernels: no memory for %zu floats of a bf16 kernel", n);
        abort();
    }
    c->at[c->n++] = x;
    return x;
}

/* NULL stays NULL. */
static float *widened(struct copies *c, size_t n, const void *from)
{
    float *x;

    if (!from)
        return NULL;
    x = new_copy(c, n);
    sp_convert(SP_BF16, SP_F32, n, from, x);
    return x;
}

static void rounded(size_t n, const float *x, void *to)
{
    sp_convert(SP_F32, SP_BF16, n, x, to);
}

static void free_copies(struct copies *c)
{
    while (c->n > 0)
        free(c->at[--c->n]);
}

static size_t area(int rows, int width)
{
    return (size_t)rows * (size_t)width;
}

/* Elements of a matrix with a leading dimension, up to its last element. */
static size_t strided_elements(int rows, int width, int ld)
{
    return rows > 0 ? (size_t)(rows - 1) * (size_t)ld + (size_t)width : 0;
}

static void round_rows(int rows, int width, const float *x, int ldx, void *to, int ld)
{
    for (int t = 0; t < rows; t++)
        rounded((size_t)width, x + area(t, ldx), (uint16_t *)to + area(t, ld));
}

/* The layer with f32 copies of w and bias. */
static struct sp_linear widened_layer(struct copies *c, const struct sp_linear *l)
{
    struct sp_linear wide = *l;

    wide.w = widened(c, area(l->out, l->in), l->w);
    wide.bias = widened(c, (size_t)l->out, l->bias);
    return wide;
}

static void linear(K, const struct sp_linear *l, const void *x, void *y)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    float *result = new_copy(&c, area(l->T, l->out));

    (void)k;
    wide.ld = l->out;
    sp_linear(&wide, widened(&c, area(l->T, l->in), x), result);
    round_rows(l->T, l->out, result, l->out, y, sp_linear_ld(l));
    free_copies(&c);
}

static void linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    float *result = new_copy(&c, area(l->T, l->out));

    (void)k;
    sp_linear_add(&wide, widened(&c, area(l->T, l->in), x),
                  widened(&c, area(l->T, l->out), residual), result);
    rounded(area(l->T, l->out), result, y);
    free_copies(&c);
}

/* act of the product before u is rounded, as a fused epilogue computes it. */
static void linear_act(K, const struct sp_linear *l, enum sp_activation kind, const void *x,
                       void *u, void *g)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    float *result = new_copy(&c, area(l->T, l->out));

    (void)k;
    sp_linear(&wide, widened(&c, area(l->T, l->in), x), result);
    rounded(area(l->T, l->out), result, u);
    sp_activation(kind, area(l->T, l->out), result, result);
    rounded(area(l->T, l->out), result, g);
    free_copies(&c);
}

static void linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    size_t n = area(l->T, l->in);
    float *result = accumulate ? widened(&c, n, dx) : new_copy(&c, n);

    (void)k;
    sp_linear_dx(&wide, widened(&c, strided_elements(l->T, l->out, sp_linear_ld(l)), dy), result,
                 accumulate);
    rounded(n, result, dx);
    free_copies(&c);
}

static void linear_dx_act(K, const struct sp_linear *l, enum sp_activation kind, const void *dy,
                          const void *u, void *du)
{
    struct copies c = {.n = 0};
    struct sp_linear wide = widened_layer(&c, l);
    size_t n = area(l->T, l->in);
    float *result = new_copy(&c, n);

    (void)k;
    sp_linear_dx(&wide, widened(&c, area(l->T, l->out), dy), result, false);
    sp_activation_bwd(kind, n, widened(&c, n, u), result, result);
    rounded(n, result, du);
    free_copies(&c);
}

static void linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                      float *dbias)
{
    struct copies c = {.n = 0};

    (void)k;
    sp_linear_dw(l, widened(&c, area(l->T, l->in), x),
                 widened(&c, strided_elements(l->T, l->out, sp_linear_ld(l)), dy), dw, dbias);
    free_copies(&c);
}

/* Logits stay f32 here. The device rounds its logits before the softmax, so its loss differs a
 * little. */
static void cross_entropy(K, const struct sp_logits *l, double *loss, void *dx, float *dw)
{
    struct copies c = {.n = 0};
    struct sp_logits wide = *l;
    float *result = dx ? new_copy(&c, area(l->T, l->h)) : NULL;

    (void)k;
    wide.x = widened(&c, area(l->T, l->h), l->x);
    wide.w = widened(&c, area(l->V, l->h), l->w);
    wide.scratch = new_copy(&c, area(l->rows, l->V));
    sp_cross_entropy(&wide, loss, result, dw);
    if (dx)
        rounded(area(l->T, l->h), result, dx);
    free_copies(&c);
}

const struct sp_backend *emulated_bf16(void)
{
    static struct sp_backend table;

    table = *sp_cpu_backend(SP_BF16);
    table.linear = linear;
    table.linear_add = linear_add;
    table.linear_act = linear_act;
    table.linear_dx = linear_dx;
    table.linear_dx_act = linear_dx_act;
    table.linear_dw = linear_dw;
    table.cross_entropy = cross_entropy;
    return &table;
}
