/* A worker's cuBLASLt: its handle, its workspace, its earlier choices; and the product that
 * kernels ask for. */
#include "kernels/cuda/gemm/gemm_cuda.h"
#include "kernels/cuda/gemm/tuning_cache.h"
#include "kernels/cuda/device/device.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

void sp_gemm_must(const struct sp_backend *k, const struct sp_product *p)
{
    if (!sp_gemm_product(k, p))
        sp_cuda_fatal(
            "cuda: cublasLt %zu has no algorithm for a product of %d x %d x %d (%s to %s, leading "
            "dimensions %d, %d, %d)",
            cublasLtGetVersion(), p->m, p->n, p->k, sp_dtype_name(p->in), sp_dtype_name(p->out),
            p->lda, p->ldb, p->ldd);
}

void sp_cuda_gemm(const struct sp_backend *k, const struct sp_gemm *g, const void *A, const void *B,
                  void *C, bool c_f32)
{
    struct sp_product p = {
        .trans_a = g->trans_a,
        .trans_b = g->trans_b,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .alpha = g->alpha,
        .beta = g->beta,
        .in = k->dtype,
        .out = c_f32 ? SP_F32 : k->dtype,
        .A = A,
        .B = B,
        .C = C,
        .D = C,
        .lda = g->lda,
        .ldb = g->ldb,
        .ldd = g->ldc,
    };

    if (g->m > 0 && g->n > 0)
        sp_gemm_must(k, &p);
}

void *sp_gemm_vector(const struct sp_backend *k, size_t bytes)
{
    struct sp_cuda_gemm *gemm = k->cuda->gemm;

    return bytes <= SP_GEMM_VECTOR_BYTES ? gemm->workspace + gemm->workspace_bytes : NULL;
}

/* ---- the library of a worker ---- */

/* Hopper's kernels use more than others: they get as much as PyTorch gives them. */
size_t sp_cuda_gemm_bytes(int device)
{
    int major = 0;

    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return (size_t)(major >= 9 ? 64 : 32) * MIB + SP_GEMM_VECTOR_BYTES;
}

/* Choices depend on the device, the library and the format of a key, 1 so far; the name has all
 * three. */
static struct sp_kept *open_cache(int device)
{
    struct cudaDeviceProp about;
    char name[sizeof about.name + 64];

    if (cudaGetDeviceProperties(&about, device) != cudaSuccess)
        return NULL;
    for (char *c = about.name; *c; c++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", *c))
            *c = '-';
    snprintf(name, sizeof name, "products-1-%s-cublasLt-%zu", about.name, cublasLtGetVersion());
    return sp_kept_open(name);
}

struct sp_cuda_gemm *sp_cuda_gemm_create(struct sp_cuda *cuda)
{
    struct sp_cuda_gemm *gemm = calloc(1, sizeof *gemm);
    const char *tune = getenv("SP_CUDA_TUNE"), *fast = getenv("SP_CUDA_FAST");
    cublasStatus_t status;
    cudaError_t err;
    size_t held;
    int code;

    if (!gemm) {
        errno = -sp_error(ENOMEM, "cuda: no memory for the table of products");
        return NULL;
    }
    gemm->stream = cuda->stream;
    gemm->tune = !tune || strcmp(tune, "0") != 0;
    gemm->fast = fast && strcmp(fast, "1") == 0;
    held = sp_cuda_gemm_bytes(cuda->device);
    gemm->workspace_bytes = held - SP_GEMM_VECTOR_BYTES;
    status = cublasLtCreate(&gemm->lt);
    if (status != CUBLAS_STATUS_SUCCESS) {
        code =
            sp_error(ELIBACC,
                     "cuda: cublasLt %zu does not start on device %d: %s: is it of the CUDA that "
                     "starpipe was built with?",
                     cublasLtGetVersion(), cuda->device, cublasLtGetStatusString(status));
        goto err_free;
    }
    err = cudaMalloc((void **)&gemm->workspace, held);
    if (err != cudaSuccess || (err = cudaEventCreate(&gemm->start)) != cudaSuccess ||
        (err = cudaEventCreate(&gemm->end)) != cudaSuccess) {
        code = sp_error(ENOMEM,
                        "cuda: device %d does not give the %zu MiB that products need: %s: does "
                        "another program use it?",
                        cuda->device, held / MIB, cudaGetErrorString(err));
        goto err_destroy;
    }
    sp_cuda_hold((int64_t)held);
    if (gemm->tune)
        gemm->kept = open_cache(cuda->device);
    return gemm;

err_destroy:
    if (gemm->start)
        cudaEventDestroy(gemm->start);
    cudaFree(gemm->workspace);
    cublasLtDestroy(gemm->lt);
err_free:
    free(gemm);
    errno = -code; /* set last: freeing may change it */
    return NULL;
}

void sp_cuda_gemm_free(struct sp_cuda_gemm *gemm)
{
    if (!gemm)
        return;
    sp_gemm_forget(gemm);
    sp_kept_close(gemm->kept);
    cudaEventDestroy(gemm->start);
    cudaEventDestroy(gemm->end);
    cudaFree(gemm->workspace);
    sp_cuda_hold(-(int64_t)(gemm->workspace_bytes + SP_GEMM_VECTOR_BYTES));
    cublasLtDestroy(gemm->lt);
    free(gemm);
}
