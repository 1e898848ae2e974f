/*
 * What the CUDA kernels of one worker share: its device, its stream, the handles of the libraries,
 * and one workspace. Everything is queued on the one stream, in order, so the workspace serves each
 * kernel in turn. Plain C for those who only create it; no StarPU.
 */
#ifndef SP_CUDA_DEVICE_H
#define SP_CUDA_DEVICE_H

#include "kernels/backend.h"
#include <cublasLt.h>
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sp_cuda_gemm;      /* products chosen so far, by shape: gemm_cuda.h */
struct sp_cuda_attention; /* what computes it, by shape: attention_fused.c */

struct sp_cuda {
    int device; /* of the CUDA runtime */
    int multiprocessors;
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
    struct sp_cuda_gemm *gemm;
    struct sp_cuda_attention *attention; /* NULL: no cuDNN, the tiled kernels serve */
    struct sp_backend backends[SP_DTYPES];
};

/*
 * Whether a device can run what was built: 0, or -errno after one line on stderr (-ENODEV: no driver,
 * no such device; -ENOTSUP: older than the oldest architecture built in, or driver too old).
 */
int sp_cuda_check(int device);

/* The kernels' state on `device` with `stream`; frees it after the last kernel ended. 0 or -errno,
 * after one line on stderr (-ENOMEM, -ELIBACC: a library is missing or too old). */
int sp_cuda_create(int device, cudaStream_t stream, struct sp_cuda **cuda);
void sp_cuda_destroy(struct sp_cuda *cuda);

static inline const struct sp_backend *sp_cuda_backend(const struct sp_cuda *cuda,
                                                       enum sp_dtype dtype)
{
    return &cuda->backends[dtype];
}

/* At least `bytes` of device memory, aligned to 256, that belong to the caller until it has queued
 * its last kernel. Grows in the first steps, when sizes are met for the first time; without memory
 * the run ends. */
void *sp_cuda_workspace(const struct sp_backend *k, size_t bytes);

/* Called where a device has no memory left for a workspace, which is then tried once more. */
void sp_cuda_when_short(void (*release)(int device));

/* Device bytes that the kernels of all workers hold: workspaces. */
int64_t sp_cuda_held_bytes(void);
/* And at most for a worker, on rows of h elements and attention `at`, which has the most keys of a run. */
int64_t sp_cuda_most_held(int device, enum sp_dtype dtype, int h, const struct sp_attention *at);

/* Ends the run with one line if err is an error: what failed, the reason, what would do. */
void sp_cuda_must(cudaError_t err, const char *what);
/* The same for those who have their own codes. Exit status 1. */
void sp_cuda_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)))
__attribute__((noreturn));

/* The parts of a table; `backend` has name, dtype and cuda. Each file of kernels/cuda fills its own. */
void sp_cuda_gemm_fill(struct sp_backend *backend);      /* linear... */
void sp_cuda_norm_fill(struct sp_backend *backend);      /* norm... */
void sp_cuda_attention_fill(struct sp_backend *backend); /* rope, attention (tiled) */
void sp_cuda_mlp_fill(struct sp_backend *backend);       /* act, gated... */
void sp_cuda_token_fill(struct sp_backend *backend);     /* embed */
void sp_cuda_loss_fill(struct sp_backend *backend);   /* cross_entropy, of vocabulary parts too */
void sp_cuda_update_fill(struct sp_backend *backend); /* add, sumsq, adamw, round */
void sp_cuda_memory_fill(struct sp_backend *backend); /* clear, copy, first_not_finite */

/*
 * C(m,n) = alpha op(A) op(B) + beta C, row-major as in sp_gemm; A and B of the backend's type, C of
 * it too or f32 (`c_f32`). For kernels that are products and something more (the head). It has a
 * workspace of its own.
 */
void sp_cuda_gemm(const struct sp_backend *k, bool trans_a, bool trans_b, int m, int n, int kk,
                  float alpha, const void *A, int lda, const void *B, int ldb, float beta, void *C,
                  int ldc, bool c_f32);

/* Attention in one kernel, FlashAttention-3's or cuDNN's, where one was built in and is there: replaces the tiled
 * kernels in the bf16 table and returns true. */
bool sp_cuda_attention_fused(struct sp_cuda *cuda, struct sp_backend *backend);
void sp_cuda_attention_free(struct sp_cuda_attention *attention);

struct sp_cuda_gemm *sp_cuda_gemm_create(struct sp_cuda *cuda);
void sp_cuda_gemm_free(struct sp_cuda_gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif
