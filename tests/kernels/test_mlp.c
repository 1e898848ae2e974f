/* Linear layers, GELU, SwiGLU, the exponential behind them, and the counting of operations. */
#include "reference.h"
#include "kernels/cpu/vec.h"

/* Sizes below and above where a team shares the work; 700 columns make two strips of dbias for each of two threads. */
static const int shapes[][3] = {{7, 24, 10}, {67, 29, 700}};

static void linear_shape(int T, int in, int out)
{
    int ld = out + 6;
    size_t n_x = (size_t)T * (size_t)in, n_w = (size_t)out * (size_t)in;
    size_t n_y = (size_t)T * (size_t)ld, n_out = (size_t)out;
    float *x = new_random(n_x, 1), *w = new_random(n_w, 2), *bias = new_random(n_out, 3);
    float *y = new_random(n_y, 4), *dx = new_nan(n_x), *dw = new_random(n_w, 5);
    float *dbias = new_random(n_out, 6);
    double *want = new_double(n_y, y), *want_dx = new_double(n_x, NULL);
    double *want_dw = new_double(n_w, dw), *want_db = new_double(n_out, dbias);
    const struct sp_linear layer = {.T = T, .in = in, .out = out, .w = w, .ld = ld};
    struct sp_gemm to_y = {.trans_b = true,
                           .m = T,
                           .n = out,
                           .k = in,
                           .lda = in,
                           .ldb = in,
                           .ldc = ld,
                           .alpha = 1,
                           .beta = 1};
    struct sp_gemm to_dx = {.m = T, .n = in, .k = out, .lda = ld, .ldb = in, .ldc = in, .alpha = 1};
    const struct sp_gemm to_dw = {.trans_a = true,
                                  .m = out,
                                  .n = in,
                                  .k = T,
                                  .lda = ld,
                                  .ldb = in,
                                  .ldc = in,
                                  .alpha = 1,
                                  .beta = 1};

    for (int i = 0; i < T; i++)
        for (int j = 0; j < out; j++) {
            y[i * ld + j] = NAN;
            want[i * ld + j] = (double)bias[j];
        }
    ref_gemm(&to_y, x, w, want);
    sp_linear(&(struct sp_linear){.T = T, .in = in, .out = out, .w = w, .bias = bias, .ld = ld}, x,
              y);
    assert_close("linear", n_y, y, want, TOLERANCE);

    to_y.beta = 0;
    ref_gemm(&to_y, x, w, want);
    for (int i = 0; i < T; i++)
        for (int j = 0; j < out; j++)
            y[i * ld + j] = NAN;
    sp_linear(&layer, x, y);
    assert_close("linear without bias", n_y, y, want, TOLERANCE);

    ref_gemm(&to_dx, y, w, want_dx);
    sp_linear_dx(&layer, y, dx, false);
    assert_close("dx =", n_x, dx, want_dx, TOLERANCE);
    to_dx.beta = 1;
    ref_gemm(&to_dx, y, w, want_dx);
    sp_linear_dx(&layer, y, dx, true);
    assert_close("dx +=", n_x, dx, want_dx, TOLERANCE);

    ref_gemm(&to_dw, y, x, want_dw);
    for (int i = 0; i < T; i++)
        for (int j = 0; j < out; j++)
            want_db[j] += (double)y[i * ld + j];
    sp_linear_dw(&layer, x, y, dw, dbias);
    assert_close("dw +=", n_w, dw, want_dw, TOLERANCE);
    assert_close("dbias +=", n_out, dbias, want_db, TOLERANCE);
    ref_gemm(&to_dw, y, x, want_dw);
    sp_linear_dw(&layer, x, y, dw, NULL);
    assert_close("dw += without dbias", n_w, dw, want_dw, TOLERANCE);
}

TEST(linear)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        linear_shape(shapes[s][0], shapes[s][1], shapes[s][2]);
}

static double gelu(double u)
{
    return 0.5 * u * (1 + tanh(sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
}

static double gelu_gradient(double u)
{
    double t = tanh(sqrt(2 / M_PI) * (u + 0.044715 * u * u * u));

    return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * u * u);
}

static double silu(double g)
{
    return g / (1 + exp(-g));
}

static double silu_gradient(double g)
{
    double s = 1 / (1 + exp(-g));

    return s + g * s * (1 - s);
}

static double call_gelu(void *x)
{
    return gelu(*(double *)x);
}

static double call_silu(void *x)
{
    return silu(*(double *)x);
}

TEST(reference_gradients)
{
    for (double u = -3; u < 3; u += 0.77) {
        double x = u, g = gelu_gradient(u);

        assert_gradient("gelu", call_gelu, &x, 1, &x, &g);
        g = silu_gradient(u);
        assert_gradient("silu", call_silu, &x, 1, &x, &g);
    }
}

/* Elementwise, so errors are relative to each element, or to 1 below 1. */
static void assert_each(const char *what, size_t n, const float *got, const double *want)
{
    double error = 0;

    for (size_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]) / fmax(1, fabs(want[i]));

        if (!(e <= error))
            error = isnan(e) ? INFINITY : e;
    }
    printf("    %-40s %8zu elements, error %.1e\n", what, n, error);
    assert_true(error < 5e-7);
}

/* The polynomial adds 0.7e-7 to the rounding of the result. */
TEST(exponential)
{
    double error = 0;

    for (float x = -80; x <= 80; x += 0.00137f) {
        double want = exp((double)x);

        error = fmax(error, fabs((double)sp_exp_softmax(x) - want) / want);
    }
    printf("    exponential: relative error %.2e\n", error);
    assert_true(error < 1.3e-7);
    assert_true(sp_exp_softmax(-81) == 0 && sp_exp_softmax(-1e30f) == 0);
    assert_true(isnan(sp_exp_softmax(NAN)));
}

/* Up to +-40: where e^-2z overflows a float too. */
TEST(gelu)
{
    for (size_t n = 1; n < 40000; n = n * 7 + 5) {
        float *u = new_random(n, n), *dy = new_random(n, n + 1), *y = new_nan(n), *du = new_nan(n);
        double *want = new_double(n, NULL);

        for (size_t i = 0; i < n; i++) {
            u[i] *= i % 3 ? 4 : 40;
            want[i] = gelu((double)u[i]);
        }
        sp_activation(SP_GELU_TANH, n, u, y);
        assert_each("gelu", n, y, want);
        for (size_t i = 0; i < n; i++)
            want[i] = (double)dy[i] * gelu_gradient((double)u[i]);
        sp_activation_bwd(SP_GELU_TANH, n, u, dy, du);
        assert_each("gelu backward", n, du, want);
        memcpy(y, dy, n * sizeof *y);
        sp_activation_bwd(SP_GELU_TANH, n, u, y, y);
        assert_same_bits(n, y, du);
        sp_activation_bwd(SP_GELU_TANH, n, u, dy, u);
        assert_same_bits(n, u, du);
    }
}

static void swiglu_shape(int T, int f)
{
    size_t n = (size_t)T * (size_t)f;
    float *u = new_random(2 * n, 11), *dy = new_random(n, 12), *y = new_nan(n);
    float *du = new_nan(2 * n);
    double *want = new_double(n, NULL), *want_du = new_double(2 * n, NULL);

    /* Gates to where e^-g overflows; ups stay near 1, as errors are relative to max(1, |want|). */
    for (size_t i = 0; i < 2 * n; i++)
        u[i] *= (int)(i % (2 * (size_t)f)) < f && i % 5 == 0 ? 100 : 2;
    for (int t = 0; t < T; t++)
        for (int j = 0; j < f; j++) {
            size_t at = (size_t)t * 2 * (size_t)f + (size_t)j, to = (size_t)(t * f + j);
            double g = (double)u[at], p = (double)u[at + (size_t)f], d = (double)dy[to];

            want[to] = silu(g) * p;
            want_du[at] = d * p * silu_gradient(g);
            want_du[at + (size_t)f] = d * silu(g);
        }
    sp_gated(&(struct sp_gated){.act = SP_SILU, .T = T, .f = f}, u, y);
    assert_each("swiglu", n, y, want);
    sp_gated_bwd(&(struct sp_gated){.act = SP_SILU, .T = T, .f = f}, u, dy, du);
    assert_each("swiglu backward", 2 * n, du, want_du);
    sp_gated_bwd(&(struct sp_gated){.act = SP_SILU, .T = T, .f = f}, u, dy, u);
    assert_same_bits(2 * n, u, du);
}

TEST(swiglu)
{
    swiglu_shape(7, 10);
    swiglu_shape(101, 99);
}

/* A NaN upstream must reach the loss, not vanish in a saturated exponential. */
TEST(nan)
{
    float u[5] = {1, NAN, 2, 3, 4}, y[5], dy[5] = {1, 1, 1, 1, 1};

    sp_activation(SP_GELU_TANH, 5, u, y);
    assert_true(isnan(y[1]) && !isnan(y[0]) && !isnan(y[2]));
    sp_activation_bwd(SP_GELU_TANH, 5, u, dy, y);
    assert_true(isnan(y[1]) && !isnan(y[0]));
    sp_gated(&(struct sp_gated){.act = SP_SILU, .T = 1, .f = 2}, u, y);
    assert_true(isnan(y[1]) && !isnan(y[0]));
}

TEST(add)
{
    for (size_t n = 1; n < 40000; n = n * 6 + 7) {
        float *x = new_random(n, 8), *y = new_random(n, 9);
        double *want = new_double(n, y);

        for (size_t i = 0; i < n; i++)
            want[i] += (double)x[i];
        sp_add(n, x, y);
        assert_close("add", n, y, want, 1e-7);
    }
}

TEST(flops)
{
    struct sp_attention at = {
        .batch = 2, .heads = 6, .kv_heads = 3, .head_dim = 10, .q_len = 5, .q_pos = 3};

    assert_true(sp_flops_linear(7, 24, 10) == 2.0 * 7 * 24 * 10);
    /* Queries 3..7 see 4 + 5 + 6 + 7 + 8 = 30 keys. */
    assert_true(sp_flops_attention(&at) == 4.0 * 10 * 6 * 2 * 30);
}
