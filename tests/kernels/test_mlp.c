/* Linear layers, the exponential of softmax, sums, and the counting of operations. */
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
    struct sp_linear layer = {.T = T, .in = in, .out = out, .w = w, .ld = ld};
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
    struct sp_gemm to_dw = {.trans_a = true,
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
    layer.first = true;
    to_dw.beta = 0;
    ref_gemm(&to_dw, y, x, want_dw);
    for (size_t i = 0; i < n_w; i++)
        dw[i] = NAN;
    sp_linear_dw(&layer, x, y, dw, dbias);
    assert_close("dw =", n_w, dw, want_dw, TOLERANCE);
    for (int j = 0; j < out; j++)
        for (int i = 0; i < T; i++)
            want_db[j] += (double)y[i * ld + j];
    assert_close("dbias += beside it", n_out, dbias, want_db, TOLERANCE);
}

TEST(linear)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        linear_shape(shapes[s][0], shapes[s][1], shapes[s][2]);
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
