/*
 * Matrix products by cuBLASLt, which is column-major. A row-major matrix is, with the same leading
 * dimension, the transpose of a column-major one, so
 *
 *   D(m,n) = op(A) op(B)   row-major   is   D^T(n,m) = op(B)^T op(A)^T   column-major:
 *
 * the library's first operand is B, its second A, and each is transposed if ours was. An operation
 * along the rows of its result runs along our columns: the bias of a layer.
 */
#include "kernels/cuda/gemm/gemm_cuda.h"
#include <string.h>

enum { EPILOGUE_ALIGNMENT = 16, FP8_ALIGNMENT = 16 };

uint32_t sp_call_alignment(const void *address)
{
    uintptr_t a = (uintptr_t)address | 256;

    return (uint32_t)(a & -a);
}

/*
 * The heuristics know the alignment of matrices but not of the vector or of aux, which fast kernels
 * read in words of 16 bytes; rows of aux must be whole words of 8 elements. Matrices of fp8 have
 * dimensions and addresses that are multiples of 16; only our m, which is the number of columns of
 * two of them, may be any.
 */
bool sp_call_allowed(const struct sp_product *p)
{
    bool aux = p->epilogue == SP_EPI_GELU || p->epilogue == SP_EPI_GELU_BIAS ||
               p->epilogue == SP_EPI_DGELU;

    if (p->in == SP_FP8 &&
        (p->n % FP8_ALIGNMENT || p->k % FP8_ALIGNMENT || p->ldd % FP8_ALIGNMENT ||
         sp_call_alignment(p->C) < FP8_ALIGNMENT || sp_call_alignment(p->D) < FP8_ALIGNMENT))
        return false;
    if (aux && (p->n % 8 || sp_call_alignment(p->aux) < EPILOGUE_ALIGNMENT))
        return false;
    return p->epilogue == SP_EPI_NONE || p->epilogue == SP_EPI_GELU ||
           p->epilogue == SP_EPI_DGELU || sp_call_alignment(p->vector) >= EPILOGUE_ALIGNMENT;
}

static cudaDataType_t type_of(enum sp_dtype t)
{
    return t == SP_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The type of our A, or of our B. */
static cudaDataType_t operand_of(const struct sp_product *p, bool a)
{
    if (p->in != SP_FP8)
        return type_of(p->in);
    return a && p->format == SP_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

static cublasLtEpilogue_t epilogue_of(enum sp_epilogue e)
{
    switch (e) {
    case SP_EPI_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case SP_EPI_GELU:
        return CUBLASLT_EPILOGUE_GELU_AUX;
    case SP_EPI_GELU_BIAS:
        return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case SP_EPI_DGELU:
        return CUBLASLT_EPILOGUE_DGELU;
    case SP_EPI_SUMS: /* our A is their B: one sum for each of its columns */
        return CUBLASLT_EPILOGUE_BGRADB;
    default:
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static bool set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t what, const void *value,
                size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(op, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* Describes a row-major matrix of the given size to cuBLASLt. */
static bool layout(cublasLtMatrixLayout_t *l, cudaDataType_t type, int rows, int cols, int ld)
{
    return cublasLtMatrixLayoutCreate(l, type, (uint64_t)cols, (uint64_t)rows, ld) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Sets vector, aux and scales, which change from call to call. By default the first two have the result's type. */
static bool set_addresses(cublasLtMatmulDesc_t op, const struct sp_product *p)
{
    if (p->in == SP_FP8 &&
        !(set(op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->scale_b, sizeof p->scale_b) &&
          set(op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->scale_a, sizeof p->scale_a)))
        return false;
    if (p->vector && !set(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->vector, sizeof p->vector))
        return false;
    return !p->aux || set(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux);
}

/* f32 operands are computed in f32: TF32 would lose 13 of 24 bits. In fp8 Hopper's tensor cores add
 * up with 14 bits; unless `fast`, their sums go into f32 registers every few steps. */
bool sp_call_create(const struct sp_product *p, bool fast, struct sp_call *call)
{
    int32_t trans_first = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t trans_second = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(p->epilogue);
    int64_t ld_aux = p->n;
    int8_t fast_sums = fast;

    memset(call, 0, sizeof *call);
    if (cublasLtMatmulDescCreate(&call->op, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS &&
        set(call->op, CUBLASLT_MATMUL_DESC_TRANSA, &trans_first, sizeof trans_first) &&
        set(call->op, CUBLASLT_MATMUL_DESC_TRANSB, &trans_second, sizeof trans_second) &&
        set(call->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
        (!p->aux || set(call->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld_aux, sizeof ld_aux)) &&
        (p->in != SP_FP8 ||
         set(call->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast_sums, sizeof fast_sums)) &&
        set_addresses(call->op, p) &&
        layout(&call->first, operand_of(p, false), p->trans_b ? p->n : p->k,
               p->trans_b ? p->k : p->n, p->ldb) &&
        layout(&call->second, operand_of(p, true), p->trans_a ? p->k : p->m,
               p->trans_a ? p->m : p->k, p->lda) &&
        layout(&call->result, type_of(p->out), p->m, p->n, p->ldd))
        return true;
    sp_call_destroy(call);
    return false;
}

void sp_call_destroy(struct sp_call *call)
{
    if (call->op)
        cublasLtMatmulDescDestroy(call->op);
    if (call->first)
        cublasLtMatrixLayoutDestroy(call->first);
    if (call->second)
        cublasLtMatrixLayoutDestroy(call->second);
    if (call->result)
        cublasLtMatrixLayoutDestroy(call->result);
    memset(call, 0, sizeof *call);
}

cublasStatus_t sp_call_run(struct sp_cuda_gemm *gemm, const struct sp_call *call,
                           const struct sp_product *p, const cublasLtMatmulAlgo_t *algo)
{
    if (!set_addresses(call->op, p))
        return CUBLAS_STATUS_INVALID_VALUE;
    return cublasLtMatmul(gemm->lt, call->op, &p->alpha, p->B, call->first, p->A, call->second,
                          &p->beta, p->beta == 0 ? p->D : p->C, call->result, p->D, call->result,
                          algo, gemm->workspace, gemm->workspace_bytes, gemm->stream);
}
