/*
 * One product as the functions of a backend need it. From the top: linear_cuda.c knows what a layer
 * needs, gemm_cuda.c has the library, gemm_choice_cuda.c chooses an algorithm, call_cuda.c passes
 * the product to cuBLASLt.
 */
#ifndef SP_GEMM_CUDA_H
#define SP_GEMM_CUDA_H

#include "kernels/cuda/device/device.h"
#include "kernels/fp8.h"

/* The operation on a sum x before it is rounded and stored in D. */
enum sp_epilogue {
    SP_EPI_NONE,
    SP_EPI_BIAS,      /* x + vector(n) */
    SP_EPI_GELU,      /* aux = x, gelu(x) */
    SP_EPI_GELU_BIAS, /* aux = x + vector(n), gelu(x + vector(n)) */
    SP_EPI_DGELU,     /* gelu'(aux) x */
    SP_EPI_SUMS       /* x; and vector(m) = row sums of op(A) */
};

/*
 * Row-major D(m,n) = epilogue(alpha op(A) op(B) + beta C), op(A) m x k, op(B) k x n, all three > 0.
 * C has the layout of D and may be D; beta 0 never reads it. D overlaps nothing else.
 * Gelu is its tanh form. vector and aux, a dense (m,n), are of type `out`.
 *
 * In fp8 A and B are codes, A in `format` and B in E4M3, and stand for so many times their numbers as
 * the two scales in the device's memory say; op(A) is A, op(B) the transpose of B.
 */
struct sp_product {
    bool trans_a, trans_b;
    int m, n, k;
    float alpha, beta;
    enum sp_dtype in, out; /* of A and B, of C and D */
    enum sp_fp8_format format;
    const float *scale_a, *scale_b;
    const void *A, *B, *C;
    void *D;
    int lda, ldb, ldd;
    enum sp_epilogue epilogue;
    void *vector, *aux;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Queues the product; false, D undefined, if the device has no algorithm. One is chosen when
 * shape, types and alignments are new. */
bool sp_gemm_product(const struct sp_backend *k, const struct sp_product *p);

/* True if the device has an algorithm for the product, whose D may be overwritten unless it is C. */
bool sp_gemm_has(const struct sp_backend *k, const struct sp_product *p);

/*
 * True if `fused` is better than `plain` followed by `rest`: it exists and was measured to be no
 * slower. `rest` queues its kernels; its outputs must be free to be overwritten.
 */
bool sp_gemm_fuses(const struct sp_backend *k, const struct sp_product *fused,
                   const struct sp_product *plain, void (*rest)(void *arg), void *arg);

/* The same for a product that has no alternative: without an algorithm the run ends. */
void sp_gemm_must(const struct sp_backend *k, const struct sp_product *p);

/* Room for one vector, aligned, until the next product that needs one; NULL if it is too long. */
void *sp_gemm_vector(const struct sp_backend *k, size_t bytes);

/* ---- between these files ---- */

struct sp_choice;

enum { SP_GEMM_CANDIDATES = 8, SP_GEMM_VECTOR_BYTES = 1 << 20, SP_GEMM_SLOTS = 256 };

/* A product in cuBLASLt's terms, without its addresses. */
struct sp_call {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t first, second, result;
};

struct sp_cuda_gemm {
    cublasLtHandle_t lt;
    cudaStream_t stream;
    /* Only products use it, so a kernel that queues one may hold sp_cuda_workspace meanwhile: the
     * library's own, and behind it SP_GEMM_VECTOR_BYTES for a bias or its gradient. */
    unsigned char *workspace;
    size_t workspace_bytes;
    bool tune, warm;      /* warm: products have run for a while before any was measured */
    bool fast;            /* fp8 products may add up less exactly */
    struct sp_kept *kept; /* earlier choices, of other workers too; NULL: none are kept */
    cudaEvent_t start, end;
    struct sp_choice *table[SP_GEMM_SLOTS];
};

/* True if cuBLASLt's rules allow the epilogue for these addresses and sizes. */
bool sp_call_allowed(const struct sp_product *p);
/* False if cuBLASLt does not know one of its attributes. `fast`: as struct sp_cuda_gemm has it. */
bool sp_call_create(const struct sp_product *p, bool fast, struct sp_call *call);
void sp_call_destroy(struct sp_call *call);
cublasStatus_t sp_call_run(struct sp_cuda_gemm *gemm, const struct sp_call *call,
                           const struct sp_product *p, const cublasLtMatmulAlgo_t *algo);
/* Frees all choices. */
void sp_gemm_forget(struct sp_cuda_gemm *gemm);
/* The largest power of two, at most 256, that divides an address. */
uint32_t sp_call_alignment(const void *address);

#ifdef __cplusplus
}
#endif

#endif
