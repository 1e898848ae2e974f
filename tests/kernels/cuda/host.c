/*
 * Implements device.h for the emulated device: the tables, a workspace that holds nothing of its
 * last user and ends exactly where it was asked to, products by plain loops.
 */
#include "emulated.h"
#include "kernels/cuda/device/device.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct sp_cuda cuda = {.multiprocessors = 3};

const struct sp_backend *sp_emulated_backend(enum sp_dtype dtype)
{
    struct sp_backend *b = &cuda.backends[dtype];

    if (!b->name) {
        *b = (struct sp_backend){.name = "cuda", .dtype = dtype, .cuda = &cuda};
        sp_cuda_norm_fill(b);
        sp_cuda_attention_fill(b);
        sp_cuda_mlp_fill(b);
        sp_cuda_token_fill(b);
        sp_cuda_loss_fill(b);
        sp_cuda_update_fill(b);
        sp_cuda_memory_fill(b);
    }
    return b;
}

void sp_emulated_wait(void)
{
    sp_cuda_must(cudaStreamSynchronize(cuda.stream), "wait");
}

void *sp_cuda_workspace(const struct sp_backend *k, size_t bytes)
{
    struct sp_cuda *c = k->cuda;

    sp_emulated_wait();
    free(c->workspace);
    if (posix_memalign(&c->workspace, 256, bytes))
        sp_cuda_fatal("no memory");
    c->workspace_bytes = bytes;
    return memset(c->workspace, 0xff, bytes);
}

void sp_cuda_fatal(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void sp_cuda_must(cudaError_t err, const char *what)
{
    if (err != cudaSuccess)
        sp_cuda_fatal("%s: %s", what, cudaGetErrorString(err));
}

static float value(enum sp_dtype t, const void *p, size_t i)
{
    return t == SP_BF16 ? sp_bf16_value(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

void sp_cuda_gemm(const struct sp_backend *k, const struct sp_gemm *g, const void *A, const void *B,
                  void *C, bool c_f32)
{
    enum sp_dtype type_c = c_f32 ? SP_F32 : k->dtype;

    sp_cuda_workspace(k, 64); /* as a library's products do */
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            size_t at = (size_t)i * (size_t)g->ldc + (size_t)j;
            double sum = 0;

            for (int l = 0; l < g->k; l++)
                sum += (double)value(k->dtype, A,
                                     (size_t)(g->trans_a ? l * g->lda + i : i * g->lda + l)) *
                       (double)value(k->dtype, B,
                                     (size_t)(g->trans_b ? j * g->ldb + l : l * g->ldb + j));
            sum *= (double)g->alpha;
            if (g->beta != 0)
                sum += (double)g->beta * (double)value(type_c, C, at);
            if (type_c == SP_BF16)
                ((uint16_t *)C)[at] = sp_bf16((float)sum);
            else
                ((float *)C)[at] = (float)sum;
        }
}
