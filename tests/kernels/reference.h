/*
 * Shared by the kernel tests: distinct random data, buffers, comparison with a double-precision
 * reference, and finite differences that check the reference's own gradients.
 */
#ifndef SP_TESTS_KERNELS_REFERENCE_H
#define SP_TESTS_KERNELS_REFERENCE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "groups.h"
#include "memory.h"
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/kernels.h"

/*
 * Float kernels against double references, relative to the largest element: sums of K products
 * round to about sqrt(K) 6e-8, and K is below 400 here; exponentials add 1e-7.
 */
#define TOLERANCE 2e-6

/* Uniform in [-1, 1), different for every (seed, i). */
static inline float random_at(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + i * 0xd1b54a32d192ed03u + 0x632be59bd9b4e019u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(z >> 40) / 8388608.0f - 1.0f;
}

static inline float *new_random(size_t n, uint64_t seed)
{
    float *x = test_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = random_at(seed, i);
    return x;
}

/* For write-only outputs: NaN shows if a kernel reads or skips an element. */
static inline float *new_nan(size_t n)
{
    float *x = test_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

static inline float *new_copy(size_t n, const float *from)
{
    return memcpy(test_bytes(n * sizeof *from), from, n * sizeof *from);
}

static inline double *new_double(size_t n, const float *from)
{
    double *x = test_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = from ? (double)from[i] : 0;
    return x;
}

/* Largest error over the largest element; NaN in `got` is infinite. */
static inline double error_of(size_t n, const float *got, const double *want)
{
    double error = 0, scale = 1e-30;

    for (size_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]);

        if (!(e <= error))
            error = isnan(e) ? INFINITY : e;
        scale = fmax(scale, fabs(want[i]));
    }
    return error / scale;
}

static inline void assert_close(const char *what, size_t n, const float *got, const double *want,
                                double tolerance)
{
    double error = error_of(n, got, want);

    printf("    %-40s %8zu elements, error %.1e (at most %.0e)\n", what, n, error, tolerance);
    assert_true(error <= tolerance);
}

static inline void assert_close_floats(const char *what, size_t n, const float *got,
                                       const float *want, double tolerance)
{
    double *w = new_double(n, want);

    assert_close(what, n, got, w, tolerance);
}

static inline void assert_same_bits(size_t n, const float *a, const float *b)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

/*
 * The gradient of f() by central differences over every element of x, against `gradient`: the
 * error of the formula is O(step^2), that of double rounding 1e-16 / step, so 1e-8 in all.
 */
static inline void assert_gradient(const char *what, double (*f)(void *), void *arg, size_t n,
                                   double *x, const double *gradient)
{
    const double step = 1e-5;
    double error = 0, scale = 1e-30;

    for (size_t i = 0; i < n; i++) {
        double keep = x[i], up, down;

        x[i] = keep + step;
        up = f(arg);
        x[i] = keep - step;
        down = f(arg);
        x[i] = keep;
        error = fmax(error, fabs((up - down) / (2 * step) - gradient[i]));
        scale = fmax(scale, fabs(gradient[i]));
    }
    printf("    %-40s %8zu differences, error %.1e\n", what, n, error / scale);
    assert_true(error / scale < 1e-7);
}

/* sp_gemm in double. */
static inline void ref_gemm(const struct sp_gemm *g, const float *A, const float *B, double *C)
{
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            double sum = 0, *c = C + i * g->ldc + j;

            for (int l = 0; l < g->k; l++)
                sum += (double)A[g->trans_a ? l * g->lda + i : i * g->lda + l] *
                       (double)B[g->trans_b ? j * g->ldb + l : l * g->ldb + j];
            *c = (double)g->alpha * sum + (g->beta == 0 ? 0 : (double)g->beta * *c);
        }
}

#endif
