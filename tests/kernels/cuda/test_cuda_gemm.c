/*
 * The products of a GPU, on a cuBLASLt that computes on the CPU and refuses what the real one
 * would: shapes, transposes, leading dimensions, alignments, epilogues and types.
 */
#include "gemm_host.h"

/* Relative to the largest element: half a unit in the last of 8 bits, and what f32 adds. */
#define ROUNDING 3.95e-3

static double worst[OTHERS + 16];

/* Rows of `cols` elements against `want`, laid out alike; what lies between rows is still NaN. */
static void compare(int what, const struct array *got, int rows, int cols, int ld,
                    const float *want, double tolerance)
{
    size_t n = (size_t)rows * (size_t)cols;
    float *g = test_bytes(n * sizeof *g);
    double *w = new_double(n, NULL), error;

    for (int i = 0; i < rows; i++)
        for (int j = 0; j < ld; j++) {
            size_t at = (size_t)i * (size_t)ld + (size_t)j;

            if (at >= got->n)
                continue;
            if (j < cols) {
                g[i * cols + j] = value_of(got->type, got->x, at);
                w[i * cols + j] = (double)want[at];
            } else {
                assert_true(isnan(value_of(got->type, got->x, at)));
            }
        }
    error = error_of(n, g, w);
    worst[what] = fmax(worst[what], error);
    if (!(error <= tolerance))
        printf("    operation %d, %d x %d: error %.1e, at most %.1e\n", what, rows, cols, error,
               tolerance);
    assert_true(error <= tolerance);
}

static double tolerance_of(const struct sp_backend *k, int roundings)
{
    return k->dtype == SP_BF16 ? roundings * ROUNDING : TOLERANCE;
}

/* 2 where no epilogue adds a bias: it is added to what was rounded. */
static int bias_roundings = 1;

/* ---- each function against kernels.h ---- */

enum { LINEAR, LINEAR_ADD, GELU_U, GELU_G, DX, DX_GELU, DW, DBIAS, GEMM, OPERATIONS };
static const char *const names[OPERATIONS] = {"linear",    "linear_add", "linear_act, u",
                                              "its g",     "linear_dx",  "linear_dx_act",
                                              "linear_dw", "its dbias",  "sp_cuda_gemm"};

struct sizes {
    int T, in, out, pad, shift;
    bool bias;
};

static size_t area(int a, int b)
{
    return (size_t)a * (size_t)b;
}

static void one_linear(const struct sp_backend *k, struct sizes s)
{
    int ld = s.out + s.pad;
    float *x = new_random(area(s.T, s.in), 1), *w = new_random(area(s.out, s.in), 2);
    float *b = new_random((size_t)s.out, 3), *want = new_nan(area(s.T, ld));
    struct array X = array(k->dtype, area(s.T, s.in), x, s.shift);
    struct array W = array(k->dtype, area(s.out, s.in), w, 0);
    struct array B = array(k->dtype, (size_t)s.out, b, s.shift);
    struct array Y = array(k->dtype, area(s.T, ld), NULL, 0);

    k->linear(
        k,
        &(struct sp_linear){
            .T = s.T, .in = s.in, .out = s.out, .w = W.x, .bias = s.bias ? B.x : NULL, .ld = ld},
        X.x, Y.x);
    sp_linear(
        &(struct sp_linear){
            .T = s.T, .in = s.in, .out = s.out, .w = w, .bias = s.bias ? b : NULL, .ld = ld},
        x, want);
    compare(LINEAR, &Y, s.T, s.out, ld, want, tolerance_of(k, bias_roundings));
}

static void one_linear_add(const struct sp_backend *k, struct sizes s)
{
    float *x = new_random(area(s.T, s.in), 4), *w = new_random(area(s.out, s.in), 5);
    float *b = new_random((size_t)s.out, 6), *r = new_random(area(s.T, s.out), 7);
    float *want = new_nan(area(s.T, s.out));
    struct array X = array(k->dtype, area(s.T, s.in), x, 0);
    struct array W = array(k->dtype, area(s.out, s.in), w, s.shift);
    struct array B = array(k->dtype, (size_t)s.out, b, s.shift);
    struct array R = array(k->dtype, area(s.T, s.out), r, s.shift);
    struct array Y = array(k->dtype, area(s.T, s.out), NULL, 0);

    k->linear_add(k,
                  &(struct sp_linear){
                      .T = s.T, .in = s.in, .out = s.out, .w = W.x, .bias = s.bias ? B.x : NULL},
                  X.x, R.x, Y.x);
    sp_linear_add(
        &(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .w = w, .bias = s.bias ? b : NULL},
        x, r, want);
    compare(LINEAR_ADD, &Y, s.T, s.out, s.out, want, tolerance_of(k, bias_roundings));
}

static void one_linear_act(const struct sp_backend *k, enum sp_activation act, struct sizes s)
{
    size_t n = area(s.T, s.out);
    float *x = new_random(area(s.T, s.in), 8), *w = new_random(area(s.out, s.in), 9);
    float *b = new_random((size_t)s.out, 10), *u = new_nan(n), *g = new_nan(n);
    struct array X = array(k->dtype, area(s.T, s.in), x, 0);
    struct array W = array(k->dtype, area(s.out, s.in), w, 0);
    struct array B = array(k->dtype, (size_t)s.out, b, s.shift);
    struct array U = array(k->dtype, n, NULL, s.shift), G = array(k->dtype, n, NULL, 0);

    k->linear_act(k,
                  &(struct sp_linear){
                      .T = s.T, .in = s.in, .out = s.out, .w = W.x, .bias = s.bias ? B.x : NULL},
                  act, X.x, U.x, G.x);
    sp_linear(
        &(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .w = w, .bias = s.bias ? b : NULL},
        x, u);
    sp_activation(act, n, u, g);
    compare(GELU_U, &U, s.T, s.out, s.out, u, tolerance_of(k, bias_roundings));
    compare(GELU_G, &G, s.T, s.out, s.out, g, tolerance_of(k, 1 + bias_roundings));
}

static void one_linear_dx(const struct sp_backend *k, struct sizes s, bool accumulate)
{
    int ld = s.out + s.pad;
    float *dy = new_random(area(s.T, ld), 11), *w = new_random(area(s.out, s.in), 12);
    float *dx = new_random(area(s.T, s.in), 13);
    struct array DY = array(k->dtype, area(s.T, ld), dy, s.shift);
    struct array W = array(k->dtype, area(s.out, s.in), w, 0);
    struct array X = array(k->dtype, area(s.T, s.in), accumulate ? dx : NULL, s.shift);

    k->linear_dx(k, &(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .w = W.x, .ld = ld},
                 DY.x, X.x, accumulate);
    sp_linear_dx(&(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .w = w, .ld = ld}, dy, dx,
                 accumulate);
    compare(DX, &X, s.T, s.in, s.in, dx, tolerance_of(k, 1));
}

static void one_linear_dx_act(const struct sp_backend *k, enum sp_activation act, struct sizes s)
{
    size_t n = area(s.T, s.in);
    float *dy = new_random(area(s.T, s.out), 14), *w = new_random(area(s.out, s.in), 15);
    float *u = new_random(n, 16), *du = new_nan(n);
    struct array DY = array(k->dtype, area(s.T, s.out), dy, 0);
    struct array W = array(k->dtype, area(s.out, s.in), w, 0);
    struct array U = array(k->dtype, n, u, s.shift), DU = array(k->dtype, n, NULL, 0);

    k->linear_dx_act(k, &(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .w = W.x}, act,
                     DY.x, U.x, DU.x);
    sp_linear_dx(&(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .w = w}, dy, du, false);
    sp_activation_bwd(act, n, u, du, du);
    compare(DX_GELU, &DU, s.T, s.in, s.in, du, tolerance_of(k, 2));
}

static void one_linear_dw(const struct sp_backend *k, struct sizes s)
{
    int ld = s.out + s.pad;
    float *x = new_random(area(s.T, s.in), 17), *dy = new_random(area(s.T, ld), 18);
    float *dw = new_random(area(s.out, s.in), 19), *db = new_random((size_t)s.out, 20);
    struct array X = array(k->dtype, area(s.T, s.in), x, 0);
    struct array DY = array(k->dtype, area(s.T, ld), dy, s.shift);
    struct array W = array(SP_F32, area(s.out, s.in), dw, s.shift);
    struct array DB = array(SP_F32, (size_t)s.out, db, s.shift);

    k->linear_dw(k, &(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .ld = ld}, X.x, DY.x,
                 (float *)W.x, s.bias ? (float *)DB.x : NULL);
    sp_linear_dw(&(struct sp_linear){.T = s.T, .in = s.in, .out = s.out, .ld = ld}, x, dy, dw,
                 s.bias ? db : NULL);
    compare(DW, &W, s.out, s.in, s.in, dw, TOLERANCE);
    compare(DBIAS, &DB, 1, s.out, s.out, db, TOLERANCE);
}

static void every_function(const struct sp_backend *k, struct sizes s)
{
    one_linear(k, s);
    one_linear_add(k, s);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++)
        one_linear_act(k, act, s);
    one_linear_dx(k, s, false);
    one_linear_dx(k, s, true);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++)
        one_linear_dx_act(k, act, s);
    one_linear_dw(k, s);
}

static const int shapes[][4] = {/* T, in, out, padding of rows */
                                {1, 1, 1, 0},  {7, 24, 40, 0}, {5, 13, 24, 3},  {9, 16, 7, 5},
                                {6, 40, 8, 8}, {33, 5, 64, 0}, {12, 136, 3, 1}, {3, 8, 16, 0}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void report(void)
{
    for (int i = 0; i < OPERATIONS; i++)
        if (worst[i] > 0)
            printf("    %-16s largest error %.1e\n", names[i], worst[i]);
    memset(worst, 0, sizeof worst);
}

/* Whatever epilogues the device has, however addresses are aligned, whether it measures or not. */
TEST(functions)
{
    const unsigned absent[] = {0, 4, 32, 64, 512, 4 | 32 | 64 | 512};

    for (int type = 0; type < SP_DTYPES; type++) {
        for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
            for (int tune = 0; tune < 2; tune++) {
                sp_fake_lt.no_epilogue = absent[i];
                bias_roundings = absent[i] & 4 ? 2 : 1;
                start(tune);
                for (int n = 0; n < 6 * SHAPES; n++)
                    every_function(&cuda.backends[type],
                                   (struct sizes){shapes[n / 6][0], shapes[n / 6][1],
                                                  shapes[n / 6][2], shapes[n / 6][3],
                                                  (int[]){0, 1, 3}[n % 3], n / 3 % 2});
                stop();
            }
        printf("    %s:\n", sp_dtype_name((enum sp_dtype)type));
        report();
    }
}

/* More columns than there is room for in a vector of the library's own. */
TEST(long_vectors)
{
    for (int type = 0; type < SP_DTYPES; type++) {
        start(false);
        bias_roundings = 2;
        one_linear(&cuda.backends[type], (struct sizes){1, 1, 600001, 0, 1, true});
        assert_int_equal(biases, 1);
        one_linear_dw(&cuda.backends[type], (struct sizes){1, 1, 300001, 0, 0, true});
        assert_int_equal(sums, 1);
        stop();
    }
    report();
}

/* g has everything but the leading dimensions. */
static void one_gemm(const struct sp_backend *k, struct sp_gemm g, bool c_f32)
{
    enum sp_dtype out = c_f32 ? SP_F32 : k->dtype;
    int t = g.trans_a + 2 * g.trans_b;
    size_t of_a, of_b, of_c;
    float *a, *b, *c;
    struct array A, B, C;
    double *want;

    g.lda = (g.trans_a ? g.m : g.k) + 3, g.ldb = (g.trans_b ? g.k : g.n) + 5, g.ldc = g.n + 2;
    of_a = area(g.trans_a ? g.k : g.m, g.lda), of_b = area(g.trans_b ? g.n : g.k, g.ldb);
    of_c = area(g.m, g.ldc);
    a = new_random(of_a, 21), b = new_random(of_b, 22), c = new_random(of_c, 23);
    A = array(k->dtype, of_a, a, g.m % 8 ? t : 0), B = array(k->dtype, of_b, b, 0);
    for (int i = 0; i < g.m; i++)
        for (int j = g.beta == 0 ? 0 : g.n; j < g.ldc; j++)
            c[i * g.ldc + j] = NAN;
    C = array(out, of_c, c, 1);
    want = new_double(of_c, c);
    sp_cuda_gemm(k, &g, A.x, B.x, C.x, c_f32);
    ref_gemm(&g, a, b, want);
    for (size_t i = 0; i < of_c; i++)
        c[i] = (float)want[i];
    compare(GEMM, &C, g.m, g.n, g.ldc, c, out == SP_BF16 ? ROUNDING : TOLERANCE);
}

TEST(gemm)
{
    const int sizes[][3] = {{8, 8, 8}, {7, 24, 10}, {33, 5, 61}, {1, 1, 1}};

    for (int tune = 0; tune < 2; tune++) {
        start(tune);
        for (int i = 0; i < 4 * 4 * 4; i++) {
            const struct sp_backend *k = &cuda.backends[i / 16 % 2];
            const int *s = sizes[i / 4 % 4];

            struct sp_gemm g = {
                .trans_a = i & 1, .trans_b = i & 2, .m = s[0], .n = s[1], .k = s[2], .alpha = 1};

            one_gemm(k, g, i / 32);
            g.alpha = -0.75f, g.beta = 1;
            one_gemm(k, g, i / 32);
            g.alpha = 0.5f, g.beta = 0.25f;
            one_gemm(k, g, i / 32);
        }
        sp_cuda_gemm(&cuda.backends[0],
                     &(struct sp_gemm){.n = 3, .k = 2, .lda = 2, .ldb = 3, .ldc = 3, .alpha = 1},
                     NULL, NULL, NULL, 0);
        stop();
    }
    report();
}

TEST_SETUP(before)
