/* Arrays of either type, the values in them, and how near they must be. */
#ifndef SP_TESTS_KERNELS_TYPED_H
#define SP_TESTS_KERNELS_TYPED_H

#include "reference.h"
#include "kernels/backend.h"

static inline void *at(enum sp_dtype t, const void *p, size_t i)
{
    return (char *)p + i * sp_dtype_bytes(t);
}

/* An array aligned to 16 bytes with `values` rounded to the type; `values` are rounded too. */
static inline void *new_typed(enum sp_dtype t, size_t n, float *values)
{
    void *p = test_bytes(n * sp_dtype_bytes(t));

    for (size_t i = 0; i < n; i++) {
        uint16_t low = sp_bf16(values[i]);

        if (t == SP_BF16) {
            values[i] = sp_bf16_value(low);
            memcpy(at(t, p, i), &low, sizeof low);
        } else {
            memcpy(at(t, p, i), &values[i], sizeof *values);
        }
    }
    return p;
}

static inline void *new_typed_nan(enum sp_dtype t, size_t n)
{
    return memset(test_bytes(n * sp_dtype_bytes(t)), 0xff, n * sp_dtype_bytes(t));
}

static inline void *new_bytes_of(size_t bytes, const void *from)
{
    return memcpy(test_bytes(bytes), from, bytes);
}

/* The f32 values of p. */
static inline float *new_values(enum sp_dtype t, size_t n, const void *p)
{
    float *x = test_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++) {
        uint16_t low;

        memcpy(&low, at(t, p, i), sizeof low);
        if (t == SP_BF16)
            x[i] = sp_bf16_value(low);
        else
            memcpy(&x[i], at(t, p, i), sizeof *x);
    }
    return x;
}

static inline void assert_same_bytes(enum sp_dtype t, size_t n, const void *a, const void *b)
{
    assert_memory_equal(a, b, n * sp_dtype_bytes(t));
}

/*
 * f32 kernels against f32 kernels: each is within TOLERANCE of the exact result. bf16 kernels
 * compute in f32 and round once: beyond half a bf16 of the element, at most 2^-8 of it, they have
 * no more error.
 */
#define BOTH (2 * TOLERANCE)

/*
 * Compares p with `want`: the largest error beyond what rounding to the type explains, over the
 * largest element.
 */
static inline void assert_typed(const char *what, enum sp_dtype t, size_t n, const void *p,
                                const float *want, double tolerance)
{
    float *got = new_values(t, n, p);
    double error = 0, scale = 1e-20; /* what is smaller may be anything as small */

    for (size_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - (double)want[i]);

        if (t == SP_BF16 && e <= fabs((double)want[i]) / 256)
            e = 0;
        else if (t == SP_BF16)
            e -= fabs((double)want[i]) / 256;
        if (!(e <= error))
            error = isnan(e) ? INFINITY : e;
        scale = fmax(scale, fabs((double)want[i]));
    }
    printf("    %-4s %-35s %8zu elements, error %.1e (at most %.0e)\n", sp_dtype_name(t), what, n,
           error / scale, tolerance);
    assert_true(error / scale <= tolerance);
}

#endif
