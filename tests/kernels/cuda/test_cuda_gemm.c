/*
 * The products of a GPU, on a cuBLASLt that computes on the CPU and refuses what the real one
 * would: shapes, transposes, leading dimensions, alignments, epilogues and types.
 */
#include "../comparison.h"
#include "gemm_host.h"

/* Relative to the largest element: half a unit in the last of 8 bits, and what f32 adds. */
#define ROUNDING 3.95e-3

static double worst[2]; /* of results in f32, and rounded to bf16 */

static void note(const char *what, size_t n, double error, double tolerance)
{
    worst[tolerance > TOLERANCE] = fmax(worst[tolerance > TOLERANCE], error);
    if (!(error <= tolerance))
        fail_msg("%s, %zu elements: error %.1e, at most %.1e", what, n, error, tolerance);
}

static void report(void)
{
    printf("    largest error %.1e, rounded to bf16 %.1e\n", worst[0], worst[1]);
    memset(worst, 0, sizeof worst);
}

/* ---- each function against kernels.h ---- */

/* 2 where no epilogue adds a bias: it is added to what was rounded. */
static int bias_roundings = 1;

/* How often a result is rounded. */
static int roundings_of(const char *what)
{
    if (!strncmp(what, "linear_dx", strlen("linear_dx")))
        return strstr(what, "act") ? 2 : 1;
    return !strcmp(what, "linear_act g") ? 1 + bias_roundings : bias_roundings;
}

static void judge_f32(const char *what, const struct tensor *x, size_t n, const float *got,
                      const float *want)
{
    (void)x;
    note(what, n, error_of(n, got, new_double(n, want)), TOLERANCE);
}

static void judge_bf16(const char *what, const struct tensor *x, size_t n, const float *got,
                       const float *want)
{
    note(what, n, error_of(n, got, new_double(n, want)),
         x->f32 ? TOLERANCE : roundings_of(what) * ROUNDING);
}

/* Both round their results, the CPU once. */
static void judge_fp8(const char *what, const struct tensor *x, size_t n, const float *got,
                      const float *want)
{
    note(what, n, error_of(n, got, new_double(n, want)),
         x->f32 ? TOLERANCE : (1 + roundings_of(what)) * ROUNDING);
}

/* Every second array begins so many elements after an aligned address, from the first or the next one on. */
static size_t shift;
static int allocations, phase;

static void *shifted(size_t bytes, size_t elem)
{
    size_t by = allocations++ % 2 == phase ? shift * elem : 0;

    return (char *)test_aligned(256, bytes + by) + by;
}

static struct comparison with_host(int type)
{
    bool fp8 = type == SP_FP8;

    return (struct comparison){
        .backends = {&cuda.backends[type], sp_cpu_backend(fp8 ? SP_FP8 : SP_F32)},
        .alloc = shifted,
        .judge = fp8               ? judge_fp8
                 : type == SP_BF16 ? judge_bf16
                                   : judge_f32};
}

static const struct shape {
    struct sp_linear layer;
    int pad; /* between rows */
} shapes[] = {
    {{.T = 1, .in = 1, .out = 1}, 0},    {{.T = 7, .in = 24, .out = 40}, 0},
    {{.T = 5, .in = 13, .out = 24}, 3},  {{.T = 9, .in = 16, .out = 7}, 5},
    {{.T = 6, .in = 40, .out = 8}, 8},   {{.T = 33, .in = 5, .out = 64}, 0},
    {{.T = 12, .in = 136, .out = 3}, 1}, {{.T = 3, .in = 8, .out = 16}, 0},
    {{.T = 3, .in = 16, .out = 32}, 0},  {{.T = 5, .in = 32, .out = 16}, 16},
};

static void every_shape(const struct comparison *c)
{
    static const size_t shifts[] = {0, 1, 3};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < 3; k++) {
            shift = shifts[k];
            allocations = 0;
            phase = (i + k) % 2;
            compare_forward(c, shapes[i].layer, shapes[i].pad);
            compare_backward(c, shapes[i].layer, shapes[i].pad);
        }
}

/* Whatever epilogues the device has, however addresses are aligned, whether it measures or not. */
TEST(functions)
{
    const unsigned absent[] = {0, 4, 32, 64, 512, 4 | 32 | 64 | 512};

    for (int type = 0; type < SP_DTYPES; type++)
        for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
            for (int tune = 0; tune < (type == SP_FP8 && i ? 1 : 2); tune++) {
                struct comparison c;

                sp_fake_lt.no_epilogue = absent[i];
                bias_roundings = absent[i] & 4 ? 2 : 1;
                start(tune);
                c = with_host(type);
                every_shape(&c);
                stop();
            }
    report();
}

/* Codes where the library multiplies them, the rounded numbers in bf16 everywhere else. */
TEST(fp8)
{
    struct comparison c;

    for (int fast = 0; fast < 2; fast++)
        for (int none = 0; none < 2; none++) {
            setenv("SP_CUDA_FAST", fast ? "1" : "0", 1);
            sp_fake_lt_reset();
            sp_fake_lt.no_fp8 = none;
            start(false);
            c = with_host(SP_FP8);
            shift = 0;
            compare_forward(&c, (struct sp_linear){.T = 19, .in = 48, .out = 32}, 0);
            compare_backward(&c, (struct sp_linear){.T = 19, .in = 48, .out = 32}, 0);
            assert_int_equal(numbers, none ? codes : 0);
            assert_true(codes > 0 && (sp_fake_lt.fp8_runs > 0) == !none);
            assert_int_equal(sp_fake_lt.fast_runs, fast ? sp_fake_lt.fp8_runs : 0);
            codes = 0;
            compare_forward(&c, (struct sp_linear){.T = 16, .in = 16, .out = 24}, 0);
            assert_int_equal(codes, 0);
            assert_true(numbers > 0);
            stop();
        }
    unsetenv("SP_CUDA_FAST");
    report();
}

/* A layer's products in fp8 take no more workspace than is planned for. */
TEST(fp8_workspace)
{
    static const int sizes[][3] = {{19, 48, 32}, {300, 16, 80}, {5, 33, 47}, {16, 16, 24}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct sp_linear l = {.T = sizes[i][0], .in = sizes[i][1], .out = sizes[i][2]};
        struct comparison c;

        start(false);
        c = with_host(SP_FP8);
        compare_forward(&c, l, 0);
        compare_backward(&c, l, 0);
        assert_true(cuda.workspace_bytes > 0 &&
                    cuda.workspace_bytes <= sp_cuda_roomy(sp_cuda_fp8_bytes(l.T, l.in, l.out)));
        stop();
    }
}

static void long_gradient(const struct comparison *c)
{
    enum { OUT = 300001 };
    struct tensor x = tensor_filled(c, 1, 17, false), dy = tensor_filled(c, OUT, 18, false);
    struct tensor dw = tensor_filled(c, OUT, 19, true), dbias = tensor_filled(c, OUT, 20, true);
    const struct sp_linear l = {.T = 1, .in = 1, .out = OUT};

    for (int i = 0; i < SIDES; i++)
        c->backends[i]->linear_dw(c->backends[i], &l, x.at[i], dy.at[i], dw.at[i], dbias.at[i]);
    tensor_check(c, "linear_dw", &dw), tensor_check(c, "dbias", &dbias);
}

/* More columns than there is room for in a vector of the library's own. */
TEST(long_vectors)
{
    for (int type = 0; type < SP_ELEMENTS; type++) {
        struct comparison c;

        start(false);
        c = with_host(type);
        shift = 1, allocations = 0, phase = 0; /* bias is the first */
        bias_roundings = 2;
        compare_forward(&c, (struct sp_linear){.T = 1, .in = 1, .out = 600001}, 0);
        assert_int_equal(biases, 2 + SP_ACTIVATIONS);
        long_gradient(&c);
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
    size_t of_a, of_b, of_c, n = 0;
    float *a, *b, *c, *got;
    struct array A, B, C;
    double *want;

    g.lda = (g.trans_a ? g.m : g.k) + 3, g.ldb = (g.trans_b ? g.k : g.n) + 5, g.ldc = g.n + 2;
    of_a = (size_t)(g.trans_a ? g.k : g.m) * (size_t)g.lda;
    of_b = (size_t)(g.trans_b ? g.n : g.k) * (size_t)g.ldb;
    of_c = (size_t)g.m * (size_t)g.ldc;
    a = new_random(of_a, 21), b = new_random(of_b, 22), c = new_random(of_c, 23);
    A = array(k->dtype, of_a, a, g.m % 8 ? t : 0), B = array(k->dtype, of_b, b, 0);
    for (int i = 0; i < g.m; i++)
        for (int j = g.beta == 0 ? 0 : g.n; j < g.ldc; j++)
            c[i * g.ldc + j] = NAN;
    C = array(out, of_c, c, 1);
    want = new_double(of_c, c);
    sp_cuda_gemm(k, &g, A.x, B.x, C.x, c_f32);
    ref_gemm(&g, a, b, want);
    got = new_nan(of_c);
    for (size_t i = 0; i < of_c; i++) {
        float value = value_of(out, C.x, i);

        if (i % (size_t)g.ldc >= (size_t)g.n) {
            assert_true(isnan(value)); /* between rows */
            continue;
        }
        want[n] = want[i];
        got[n++] = value;
    }
    note("sp_cuda_gemm", n, error_of(n, got, want), out == SP_BF16 ? ROUNDING : TOLERANCE);
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
