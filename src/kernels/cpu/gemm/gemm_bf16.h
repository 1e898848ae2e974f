/*
 * Matrix products of bf16 operands: sums in f32, each result rounded once. In bf16 arithmetic where
 * the CPU has it and oneDNN is there, through f32 otherwise.
 */
#ifndef SP_KERNELS_GEMM_BF16_H
#define SP_KERNELS_GEMM_BF16_H

#include "kernels/backend.h"

/*
 * C(m,n) = op(A) op(B), op(A) m x k, op(B) k x n, row-major with leading dimensions. All of it
 * integers, so that two products are alike if their bytes are.
 */
struct sp_gemm_bf16 {
    int trans_a, trans_b;
    int m, n, k;
    int lda, ldb, ldc;
    enum sp_dtype type; /* of C; A and B are bf16 */
    int accumulate;     /* C += instead of = */
    int bias;           /* + bias(n), bf16, to each row */
    int addend;         /* + addend(m,n), bf16, dense; not with `accumulate` */
};

/* bias and addend are read where `g` says so. On the calling thread's team, or on one thread inside
 * of a parallel region. Aborts the run if the library refuses. */
void sp_gemm_bf16(const struct sp_gemm_bf16 *g, const void *A, const void *B, const void *bias,
                  const void *addend, void *C);

/* The two ways to do it. The first only where sp_cpu_bf16_unit() says that there is a unit. */
void sp_gemm_bf16_native(const struct sp_gemm_bf16 *g, const void *A, const void *B,
                         const void *bias, const void *addend, void *C);
void sp_gemm_bf16_widened(const struct sp_gemm_bf16 *g, const void *A, const void *B,
                          const void *bias, const void *addend, void *C);

#endif
