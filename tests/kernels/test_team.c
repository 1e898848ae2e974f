/* Products are whole whatever OpenMP makes of the teams of the thread that asks for them. */
#include "kernels/cpu/team.h"
#include "reference.h"
#include <pthread.h>

enum { M = 130, N = 67, K = 257, THREADS = 3 };

/* Ends that the environment can ask for. */
struct asked {
    int dynamic, levels;
};

#ifdef _OPENMP
static void *multiply(void *arg)
{
    const struct asked *asked = arg;
    float *A = new_random(M * K, 1), *B = new_random(K * N, 2), *C = new_random(M * N, 3);
    double *want = new_double(M * N, C);

    omp_set_num_threads(THREADS);
    omp_set_dynamic(asked->dynamic);
    omp_set_max_active_levels(asked->levels);
    ref_gemm(&(struct sp_gemm){.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N, .alpha = 1}, A,
             B, want);
    sp_gemm(&(struct sp_gemm){.m = M, .n = N, .k = K, .alpha = 1, .lda = K, .ldb = N, .ldc = N}, A,
            B, C);
    assert_close("a product", M * N, C, want, TOLERANCE);
    assert_false(omp_get_dynamic());
    assert_int_equal(omp_get_max_threads(), THREADS);
    return NULL;
}

TEST(product)
{
    static struct asked asked[] = {{0, 1}, {1, 1}, {0, 0}, {1, 0}};

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        pthread_t thread; /* such settings are a thread's own */

        assert_int_equal(pthread_create(&thread, NULL, multiply, &asked[i]), 0);
        pthread_join(thread, NULL);
    }
}

static void *settle(void *arg)
{
    int size = 0;

    omp_set_dynamic(1);
    omp_set_max_active_levels(0);
    sp_team_settle(*(int *)arg);
#pragma omp parallel
#pragma omp master
    size = omp_get_num_threads();
    *(int *)arg = size;
    return NULL;
}

TEST(size)
{
    for (int threads = 1; threads <= 4; threads++) {
        int size = threads;
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, settle, &size), 0);
        pthread_join(thread, NULL);
        assert_int_equal(size, threads < sp_team_most() ? threads : sp_team_most());
    }
}
#endif
