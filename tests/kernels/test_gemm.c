/* sp_gemm: transpositions, leading dimensions, alpha and beta, against double loops. */
#include "reference.h"

static void one_product(bool ta, bool tb, int m, int n, int k, float alpha, float beta)
{
    int lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 5, ldc = n + 2;
    size_t in_c = (size_t)m * (size_t)ldc;
    float *A = new_random((size_t)(ta ? k : m) * (size_t)lda, 1);
    float *B = new_random((size_t)(tb ? n : k) * (size_t)ldb, 2);
    float *C = new_random(in_c, 3), *again;
    double *want = new_double(in_c, C);
    char what[64];

    ref_gemm(ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, want, ldc);
    if (beta == 0)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++)
                C[i * ldc + j] = NAN;
    again = new_copy(in_c, C);
    sp_gemm(&(struct sp_gemm){.trans_a = ta,
                              .trans_b = tb,
                              .m = m,
                              .n = n,
                              .k = k,
                              .alpha = alpha,
                              .lda = lda,
                              .ldb = ldb,
                              .beta = beta,
                              .ldc = ldc},
            A, B, C);
    sp_gemm(&(struct sp_gemm){.trans_a = ta,
                              .trans_b = tb,
                              .m = m,
                              .n = n,
                              .k = k,
                              .alpha = alpha,
                              .lda = lda,
                              .ldb = ldb,
                              .beta = beta,
                              .ldc = ldc},
            A, B, again);
    snprintf(what, sizeof what, "%c%c %dx%dx%d alpha %g beta %g", ta ? 'T' : 'N', tb ? 'T' : 'N', m,
             n, k, (double)alpha, (double)beta);
    /* The columns between n and ldc are in `want` as they were. */
    assert_close(what, in_c, C, want, TOLERANCE);
    assert_same_bits(in_c, C, again);
    free(A), free(B), free(C), free(again), free(want);
}

static void test_products(void **state)
{
    const int sizes[][3] = {{1, 1, 1}, {7, 24, 10}, {33, 5, 61}, {130, 67, 257}};

    (void)state;
    printf("    %s\n", sp_gemm_backend());
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 4; t++) {
            one_product(t & 1, t & 2, sizes[s][0], sizes[s][1], sizes[s][2], 1, 0);
            one_product(t & 1, t & 2, sizes[s][0], sizes[s][1], sizes[s][2], -0.75f, 1);
            one_product(t & 1, t & 2, sizes[s][0], sizes[s][1], sizes[s][2], 0.5f, 0.25f);
        }
}

static void test_empty(void **state)
{
    float c[6] = {1, 2, 3, 4, 5, NAN}, unread = NAN;

    (void)state;
    sp_gemm(&(struct sp_gemm){.n = 3, .k = 2, .alpha = 1, .lda = 2, .ldb = 3, .ldc = 3}, &unread,
            &unread, c);
    assert_true(c[0] == 1 && c[4] == 5);
    sp_gemm(
        &(struct sp_gemm){.m = 1, .n = 2, .alpha = 1, .lda = 1, .ldb = 2, .beta = 0.5f, .ldc = 2},
        &unread, &unread, c);
    assert_true(c[0] == 0.5f && c[1] == 1 && c[2] == 3);
    sp_gemm(&(struct sp_gemm){.m = 1, .n = 2, .alpha = 1, .lda = 1, .ldb = 2, .ldc = 2}, &unread,
            &unread, c + 4);
    assert_true(c[4] == 0 && c[5] == 0);
}

/* Attention calls it from inside a region, one product to a thread. */
static void test_inside_region(void **state)
{
    enum { M = 19, N = 31, K = 23, CALLS = 8 };
    float *A = new_random(M * K, 4), *B = new_random(N * K, 5), *C[CALLS];
    double *want = new_double(M * N, NULL);

    (void)state;
    ref_gemm(false, true, M, N, K, 1, A, K, B, K, 0, want, N);
    for (int i = 0; i < CALLS; i++)
        C[i] = new_nan(M * N);
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < CALLS; i++)
        sp_gemm(
            &(struct sp_gemm){
                .trans_b = true, .m = M, .n = N, .k = K, .alpha = 1, .lda = K, .ldb = K, .ldc = N},
            A, B, C[i]);
    for (int i = 0; i < CALLS; i++) {
        assert_close("in a region", M * N, C[i], want, TOLERANCE);
        assert_same_bits(M * N, C[i], C[0]);
    }
    for (int i = 0; i < CALLS; i++)
        free(C[i]);
    free(A), free(B), free(want);
}

TEST_GROUP(gemm)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_inside_region),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
