/* The state of a worker and the tables of its kernels, one file's part after another's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "kernels/cuda/device/device.h"
#include "sp_error.h"
#include <stdlib.h>

static void fill_table(struct sp_cuda *cuda, enum sp_dtype dtype)
{
    struct sp_backend *backend = &cuda->backends[dtype];

    backend->name = "cuda";
    backend->dtype = sp_dtype_elements(dtype);
    backend->products = dtype;
    backend->cuda = cuda;
    sp_cuda_gemm_fill(backend);
    sp_cuda_norm_fill(backend);
    sp_cuda_attention_fill(backend);
    sp_cuda_mlp_fill(backend);
    sp_cuda_token_fill(backend);
    sp_cuda_loss_fill(backend);
    sp_cuda_update_fill(backend);
    sp_cuda_memory_fill(backend);
}

int sp_cuda_create(int device, cudaStream_t stream, struct sp_cuda **cuda)
{
    struct sp_cuda *c = calloc(1, sizeof *c);
    cudaError_t err;
    int code;

    if (!c)
        return sp_error(ENOMEM, "cuda: no memory for the state of device %d", device);
    c->device = device;
    c->stream = stream;
    err = cudaSetDevice(device);
    if (err == cudaSuccess)
        err = cudaDeviceGetAttribute(&c->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (err != cudaSuccess) {
        code = sp_error(ENODEV, "cuda: device %d does not start: %s: does another program use it?",
                        device, cudaGetErrorString(err));
        goto err_free;
    }
    c->gemm = sp_cuda_gemm_create(c);
    if (!c->gemm) {
        code = -errno;
        goto err_free;
    }
    for (int t = 0; t < SP_DTYPES; t++)
        fill_table(c, (enum sp_dtype)t);
    sp_cuda_attention_fused(c, &c->backends[SP_BF16]);
    c->backends[SP_FP8].attention = c->backends[SP_BF16].attention;
    c->backends[SP_FP8].attention_bwd = c->backends[SP_BF16].attention_bwd;
    *cuda = c;
    return 0;

err_free:
    free(c);
    return code;
}

void sp_cuda_destroy(struct sp_cuda *cuda)
{
    if (!cuda)
        return;
    sp_cuda_must(cudaStreamSynchronize(cuda->stream), "last kernels");
    sp_cuda_attention_free(cuda->attention);
    sp_cuda_gemm_free(cuda->gemm);
    sp_cuda_release(cuda);
    free(cuda);
}

/* Sums over rows keep up to 512 of a gain and a bias, or 256 of the widest bias, in f32; more of narrow ones, which
 * take no more than half of the least. */
int64_t sp_cuda_most_held(int device, enum sp_dtype dtype, const struct sp_linear *widest,
                          const struct sp_attention *at)
{
    const int h = widest->in;
    size_t sums = 8192 * (size_t)(h > 2048 ? h : 2048), unused, all = 0;
    size_t rows = sizeof(float) * (size_t)at->batch * (size_t)at->heads * (size_t)at->q_len;
    size_t most = sums > rows ? sums : rows, attention = 0;
    size_t codes = dtype == SP_FP8 ? sp_cuda_fp8_bytes(widest->T, h, widest->out) : 0;

    if (cudaSetDevice(device) == cudaSuccess)
        cudaMemGetInfo(&unused, &all);
    if (dtype != SP_F32)
        attention = sp_cuda_attention_bytes(device, at, all);
    if (attention > most)
        most = attention;
    most = codes > most ? codes : most;
    return (int64_t)(sp_cuda_gemm_bytes(device) + sp_cuda_roomy(most));
}

#ifndef HAVE_CUDNN_FRONTEND
size_t sp_cuda_attention_bytes(int device, const struct sp_attention *at, size_t device_bytes)
{
    (void)device, (void)at, (void)device_bytes;
    return 0;
}

bool sp_cuda_attention_fused(struct sp_cuda *cuda, struct sp_backend *backend)
{
    (void)cuda, (void)backend;
    return false;
}

void sp_cuda_attention_free(struct sp_cuda_attention *attention)
{
    (void)attention;
}
#endif
