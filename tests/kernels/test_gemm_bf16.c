/*
 * Products of bf16: both ways to compute them, with everything that is added to them, against
 * double loops over the same bf16 values. A bf16 result is one rounding away, at most 2^-8 of
 * itself.
 */
#include "typed.h"
#include "kernels/cpu/gemm/gemm_bf16.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include <pthread.h>

typedef void (*way)(const struct sp_gemm_bf16 *g, const void *A, const void *B, const void *bias,
                    const void *addend, void *C);

static const struct {
    const char *name;
    way product;
} ways[] = {{"as chosen", sp_gemm_bf16}, {"through f32", sp_gemm_bf16_widened}};

/* Random bf16 values, and the same as floats. */
static uint16_t *new_low(size_t n, uint64_t seed, float **wide)
{
    *wide = new_random(n, seed);
    return new_typed(SP_BF16, n, *wide);
}

/* C as it was, in its type; the columns from n to ldc are NaN. */
static void *new_result(const struct sp_gemm_bf16 *g, const float *c)
{
    size_t n = (size_t)g->m * (size_t)g->ldc;
    void *C = test_bytes(n * sizeof(float));

    for (size_t i = 0; i < n; i++) {
        bool kept = g->accumulate && (int)(i % (size_t)g->ldc) < g->n;

        if (g->type == SP_BF16)
            ((uint16_t *)C)[i] = kept ? sp_bf16(c[i]) : 0xffff;
        else
            ((float *)C)[i] = kept ? c[i] : NAN;
    }
    return C;
}

/* Largest error of a row's n columns beyond what its rounding allows, over the largest element. */
static double excess(const struct sp_gemm_bf16 *g, const void *C, const double *want)
{
    double worst = 0, top = 1e-30;

    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->ldc; j++) {
            size_t at = (size_t)i * (size_t)g->ldc + (size_t)j;
            double got = g->type == SP_BF16 ? (double)sp_bf16_value(((const uint16_t *)C)[at])
                                            : (double)((const float *)C)[at];
            double w = want[at], rounding = g->type == SP_BF16 ? fabs(w) / 256 : 0;

            if (j >= g->n) {
                assert_true(isnan(got)); /* not to be written */
                continue;
            }
            top = fmax(top, fabs(w));
            worst = fmax(worst, isnan(got) ? INFINITY : fabs(got - w) - rounding);
        }
    return worst / top;
}

static void one_product(struct sp_gemm_bf16 g, int pad)
{
    size_t na, nb, nc;
    float *a, *b, *c, *bias, *addend;
    uint16_t *A, *B, *BIAS, *ADDEND;
    double *want;

    g.lda = (g.trans_a ? g.m : g.k) + pad, g.ldb = (g.trans_b ? g.k : g.n) + 2 * pad;
    g.ldc = g.n + pad;
    na = (size_t)(g.trans_a ? g.k : g.m) * (size_t)g.lda;
    nb = (size_t)(g.trans_b ? g.n : g.k) * (size_t)g.ldb, nc = (size_t)g.m * (size_t)g.ldc;
    A = new_low(na, 1, &a), B = new_low(nb, 2, &b);
    new_low(nc, 3, &c);
    BIAS = new_low((size_t)g.n, 4, &bias);
    ADDEND = new_low((size_t)g.m * (size_t)g.n, 5, &addend);
    want = new_double(nc, c);
    ref_gemm(&(struct sp_gemm){.trans_a = g.trans_a,
                               .trans_b = g.trans_b,
                               .m = g.m,
                               .n = g.n,
                               .k = g.k,
                               .lda = g.lda,
                               .ldb = g.ldb,
                               .ldc = g.ldc,
                               .alpha = 1,
                               .beta = g.accumulate},
             a, b, want);
    for (int i = 0; i < g.m; i++)
        for (int j = 0; j < g.n; j++)
            want[i * g.ldc + j] +=
                (g.bias ? (double)bias[j] : 0) + (g.addend ? (double)addend[i * g.n + j] : 0);
    for (int w = 0; w < 2; w++) {
        void *C = new_result(&g, c), *again = new_result(&g, c);
        double error;

        ways[w].product(&g, A, B, BIAS, ADDEND, C);
        ways[w].product(&g, A, B, BIAS, ADDEND, again);
        error = excess(&g, C, want);
        assert_memory_equal(C, again, nc * sp_dtype_bytes(g.type));
        if (!(error <= TOLERANCE))
            fail_msg("%s %c%c %d x %d x %d pad %d to %s%s%s%s: error %.1e", ways[w].name,
                     g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, pad,
                     sp_dtype_name(g.type), g.accumulate ? " +=" : "", g.bias ? " + bias" : "",
                     g.addend ? " + addend" : "", error);
    }
}

TEST(products)
{
    const int sizes[][3] = {{1, 1, 1}, {7, 24, 10}, {33, 5, 61}, {130, 67, 257}, {1, 96, 64}};
    int n = 0;

    printf("    bf16 products by: %s\n", sp_bf16_unit_name(sp_cpu_bf16_unit()));
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 4; t++)
            for (int type = 0; type < SP_ELEMENTS; type++)
                for (int more = 0; more < 6; more++, n++)
                    one_product((struct sp_gemm_bf16){.trans_a = t & 1,
                                                      .trans_b = t >> 1,
                                                      .m = sizes[s][0],
                                                      .n = sizes[s][1],
                                                      .k = sizes[s][2],
                                                      .type = type ? SP_BF16 : SP_F32,
                                                      .accumulate = more % 3 == 1,
                                                      .addend = more % 3 == 2,
                                                      .bias = more / 3},
                                n % 2 ? 3 : 0);
    printf("    %d products, two ways\n", n);
}

/* More than a block of each side; sums of 2100 products need a wider tolerance than TOLERANCE. */
TEST(blocks)
{
    one_product((struct sp_gemm_bf16){.m = 513, .n = 9, .k = 40, .type = SP_BF16, .bias = 1}, 0);
    one_product(
        (struct sp_gemm_bf16){
            .m = 9, .n = 1030, .k = 40, .type = SP_BF16, .trans_b = 1, .addend = 1},
        1);
    one_product((struct sp_gemm_bf16){.m = 6, .n = 5, .k = 2100, .trans_a = 1, .accumulate = 1}, 0);
}

TEST(empty)
{
    const uint16_t bias[2] = {sp_bf16(2), sp_bf16(-3)};
    uint16_t unread = 0xffff, c[4] = {sp_bf16(1), sp_bf16(4), 0xffff, 0xffff};

    sp_gemm_bf16(&(struct sp_gemm_bf16){.n = 3, .k = 2, .ldc = 3, .type = SP_BF16}, &unread,
                 &unread, NULL, NULL, c);
    assert_true(c[0] == sp_bf16(1));
    sp_gemm_bf16(
        &(struct sp_gemm_bf16){
            .m = 1, .n = 2, .ldc = 2, .type = SP_BF16, .accumulate = 1, .bias = 1},
        &unread, &unread, bias, NULL, c);
    assert_true(c[0] == sp_bf16(3) && c[1] == sp_bf16(1));
    sp_gemm_bf16(&(struct sp_gemm_bf16){.m = 1, .n = 2, .ldc = 2, .type = SP_BF16}, &unread,
                 &unread, NULL, NULL, c + 2);
    assert_true(c[2] == 0 && c[3] == 0);
}

enum { M = 19, N = 31, K = 23, CALLS = 8 };

/* Inside a parallel region each thread computes a product with the bits of one thread alone. */
TEST(inside_region)
{
    const struct sp_gemm_bf16 g = {
        .trans_b = 1, .m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N};
    float *a, *b, *C[CALLS];
    uint16_t *A = new_low(M * K, 4, &a), *B = new_low(N * K, 5, &b);
    double *want = new_double(M * N, NULL);

    ref_gemm(
        &(struct sp_gemm){
            .trans_b = true, .m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N, .alpha = 1},
        a, b, want);
    for (int i = 0; i < CALLS; i++)
        C[i] = new_nan(M * N);
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < CALLS; i++)
        sp_gemm_bf16(&g, A, B, NULL, NULL, C[i]);
    for (int i = 0; i < CALLS; i++) {
        assert_close("in a region", M * N, C[i], want, TOLERANCE);
        assert_same_bits(M * N, C[i], C[0]);
    }
}

/* More products than a thread keeps, each on a team of one and on one of two. */
static void *many(void *arg)
{
    enum { SIZES = 700 };
    float *a, *b, *c = new_nan(SIZES + 1);
    uint16_t *A = new_low(3, 6, &a), *B = new_low(3 * (SIZES + 1), 7, &b);
    int *wrong = arg;

    for (int round = 0; round < 2; round++)
        for (int n = 1; n <= SIZES; n++) {
            const struct sp_gemm_bf16 g = {
                .trans_b = 1, .m = 1, .n = n, .k = 3, .lda = 3, .ldb = 3, .ldc = n};
            float last = a[0] * b[3 * n - 3] + a[1] * b[3 * n - 2] + a[2] * b[3 * n - 1];

            omp_set_num_threads(1 + (n + round) % 2);
            sp_gemm_bf16(&g, A, B, NULL, NULL, c);
            *wrong += !(fabsf(c[n - 1] - last) < 1e-6f);
        }
    return NULL;
}

TEST(many)
{
    int wrong[3] = {0}, team = omp_get_max_threads();
    pthread_t thread[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, many, &wrong[i]), 0);
    many(&wrong[2]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    omp_set_num_threads(team);
    assert_true(!wrong[0] && !wrong[1] && !wrong[2]);
}

/* Rounding of vectors is that of single values. */
TEST(rounding)
{
    enum { ALL = 0x10000 };
    float *x = test_bytes(4 * ALL * sizeof *x), *back = test_bytes(ALL * sizeof *back);
    uint16_t *y = test_bytes(4 * ALL * sizeof *y), *low = test_bytes(ALL * sizeof *low);
    const uint32_t tails[4] = {0, 0x7fff, 0x8000, 0x8001};

    for (uint32_t i = 0; i < 4 * ALL; i++) {
        uint32_t u = i / 4 << 16 | tails[i % 4];

        memcpy(&x[i], &u, sizeof u);
    }
    sp_bf16_round(4 * ALL, x, y);
    for (size_t i = 0; i < 4 * ALL; i++)
        assert_int_equal(y[i], sp_bf16(x[i]));
    for (uint32_t i = 0; i < ALL; i++)
        low[i] = (uint16_t)i;
    sp_bf16_widen(ALL, low, back);
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t u;

        memcpy(&u, &back[i], sizeof u);
        assert_int_equal(u, i << 16);
    }
}
