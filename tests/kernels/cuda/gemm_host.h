/*
 * A worker whose products go to the cuBLASLt of fake_lt.h, and the kernels around products on the
 * host.
 */
#ifndef SP_TESTS_GEMM_HOST_H
#define SP_TESTS_GEMM_HOST_H

#include "../reference.h"
#include "fake_cudart.h"
#include "fake_lt.h"
#include "kernels/cuda/gemm/fp8_cuda.h"
#include "kernels/cuda/gemm/gemm_cuda.h"
#include "kernels/cuda/pointwise/epilogues.h"
#include "kernels/cuda/pointwise/sums.h"

/* The microseconds that kernels on the host pretend to take, and how often they were called. */
enum { GELU_US = 1, SUMS_US = 2, OTHERS };
extern double kernel_us[OTHERS];
extern int gelus, sums, biases, codes, numbers;

float value_of(enum sp_dtype t, const void *x, size_t i);
void set_value(enum sp_dtype t, void *x, size_t i, float value);

/* The worker, with all types; `stop` checks that nothing is left. */
extern struct sp_cuda cuda;
void start(bool tune);
void stop(void);

/* cmocka's setup before each test. */
int before(void **state);

/* An array of a type, some elements away from an aligned address. */
struct array {
    enum sp_dtype type;
    size_t n;
    unsigned char *x;
};

/* An array of v rounded to the type; v is rounded too. NULL: NaN. */
struct array array(enum sp_dtype type, size_t n, float *v, int shift);

#endif
