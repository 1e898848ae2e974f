/*
 * cuBLAS as far as StarPU's starpu_cublas_init goes: handles that know their stream, and no
 * products. A program that calls one does not link, or stops with the linker's message.
 */
#include <cublas.h>
#include <stdlib.h>

struct cublasContext {
    cudaStream_t stream;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    free(handle);
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    (void)handle;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream)
{
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the fake cuBLAS";
}

/* The older interface, which StarPU starts too. */

cublasStatus cublasInit(void)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus cublasShutdown(void)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus cublasSetKernelStream(cudaStream_t stream)
{
    (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}
