/* sp_gemm: transpositions, leading dimensions, alpha and beta, against double loops. */
#include "reference.h"

/* g has everything but the leading dimensions. */
static void one_product(struct sp_gemm g)
{
    size_t of_a, of_b, of_c;
    float *A, *B, *C, *again;
    double *want;
    char what[64];

    g.lda = (g.trans_a ? g.m : g.k) + 3, g.ldb = (g.trans_b ? g.k : g.n) + 5, g.ldc = g.n + 2;
    of_a = (size_t)(g.trans_a ? g.k : g.m) * (size_t)g.lda;
    of_b = (size_t)(g.trans_b ? g.n : g.k) * (size_t)g.ldb;
    of_c = (size_t)g.m * (size_t)g.ldc;
    A = new_random(of_a, 1), B = new_random(of_b, 2), C = new_random(of_c, 3);
    want = new_double(of_c, C);
    ref_gemm(&g, A, B, want);
    if (g.beta == 0)
        for (int i = 0; i < g.m; i++)
            for (int j = 0; j < g.n; j++)
                C[i * g.ldc + j] = NAN;
    again = new_copy(of_c, C);
    sp_gemm(&g, A, B, C);
    sp_gemm(&g, A, B, again);
    snprintf(what, sizeof what, "%c%c %dx%dx%d alpha %g beta %g", g.trans_a ? 'T' : 'N',
             g.trans_b ? 'T' : 'N', g.m, g.n, g.k, (double)g.alpha, (double)g.beta);
    /* The columns between n and ldc are in `want` as they were. */
    assert_close(what, of_c, C, want, TOLERANCE);
    assert_same_bits(of_c, C, again);
}

TEST(products)
{
    const int sizes[][3] = {{1, 1, 1}, {7, 24, 10}, {33, 5, 61}, {130, 67, 257}};

    printf("    %s\n", sp_gemm_backend());
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int t = 0; t < 4; t++) {
            struct sp_gemm g = {.trans_a = t & 1,
                                .trans_b = t & 2,
                                .m = sizes[s][0],
                                .n = sizes[s][1],
                                .k = sizes[s][2],
                                .alpha = 1};

            one_product(g);
            g.alpha = -0.75f, g.beta = 1;
            one_product(g);
            g.alpha = 0.5f, g.beta = 0.25f;
            one_product(g);
        }
}

TEST(empty)
{
    float c[6] = {1, 2, 3, 4, 5, NAN}, unread = NAN;

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
TEST(inside_region)
{
    enum { M = 19, N = 31, K = 23, CALLS = 8 };
    float *A = new_random(M * K, 4), *B = new_random(N * K, 5), *C[CALLS];
    double *want = new_double(M * N, NULL);

    ref_gemm(
        &(struct sp_gemm){
            .trans_b = true, .m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N, .alpha = 1},
        A, B, want);
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
}
