/*
 * Shared by the CUDA kernels of one worker: its device, its stream, the handles of the libraries,
 * and one workspace. Everything is queued on the one stream, in order, so the workspace serves each
 * kernel in turn. Plain C for callers that only create it; no StarPU.
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
struct sp_cuda_attention; /* its engine, by shape: attention_fused.c */

struct sp_cuda {
    int device; /* of the CUDA runtime */
    int multiprocessors;
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
    struct sp_cuda_gemm *gemm;
    struct sp_cuda_attention *attention; /* NULL: no fused attention, the tiled kernels serve */
    struct sp_backend backends[SP_DTYPES];
};

/*
 * Checks that a device can run the kernels built in: 0, or -errno after one line on stderr
 * (-ENODEV: no driver, no such device; -ENOTSUP: older than the oldest architecture built in, or
 * driver too old).
 */
int sp_cuda_check(int device);

/* Creates the kernels' state on `device` with `stream`; destroy it after the last kernel ended.
 * 0 or -errno after one line on stderr (-ENOMEM, -ELIBACC: a library is missing or too old). */
int sp_cuda_create(int device, cudaStream_t stream, struct sp_cuda **cuda);
void sp_cuda_destroy(struct sp_cuda *cuda);

static inline const struct sp_backend *sp_cuda_backend(const struct sp_cuda *cuda,
                                                       enum sp_dtype dtype)
{
    return &cuda->backends[dtype];
}

/* At least `bytes` of device memory, aligned to 256, that belong to the caller until it has queued
 * its last kernel. It grows in the first steps, when sizes are new; without memory the run ends. */
void *sp_cuda_workspace(const struct sp_backend *k, size_t bytes);

/* Sets a function that is called when a device has no memory left for a workspace, which is then
 * tried once more. */
void sp_cuda_when_short(void (*release)(int device));

/* Bytes of devices that the kernels of all workers hold: workspaces. */
int64_t sp_cuda_held_bytes(void);
/* The most that a worker may hold, for a layer whose widest product is `widest`, from rows of
 * widest->in elements, and attention `at`, the one with the most keys of a run. */
int64_t sp_cuda_most_held(int device, enum sp_dtype dtype, const struct sp_linear *widest,
                          const struct sp_attention *at);

/* Ends the run if err is an error, with one line: what failed, the reason, a remedy. */
void sp_cuda_must(cudaError_t err, const char *what);
/* The same for libraries with their own codes. Exit status 1. */
void sp_cuda_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)))
__attribute__((noreturn));

/* ---- between the files that make up struct sp_cuda ---- */

/* Adds to sp_cuda_held_bytes; negative to release. */
void sp_cuda_hold(int64_t bytes);

/* The bytes that sp_cuda_workspace takes for a request of `bytes`: sizes of a model differ by
 * little, so with some room to spare few later requests make it grow. */
size_t sp_cuda_roomy(size_t bytes);

/* Bytes that products take on a device and never give back. */
size_t sp_cuda_gemm_bytes(int device);

/* The most workspace that the products of a linear layer take in fp8. */
size_t sp_cuda_fp8_bytes(int T, int in, int out);

/* The most workspace that attention takes on a device with so much memory; 0: neither
 * FlashAttention-3 nor cuDNN is there. */
size_t sp_cuda_attention_bytes(int device, const struct sp_attention *at, size_t device_bytes);

/* Frees the workspace; its last kernel must have ended. */
void sp_cuda_release(struct sp_cuda *cuda);

/* The parts of a table; `backend` has name, types and cuda. Each file of kernels/cuda fills in
 * its own. */
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
 * the same type or f32 (`c_f32`). For kernels that are products and something more (the head). It
 * uses a workspace of its own.
 */
void sp_cuda_gemm(const struct sp_backend *k, const struct sp_gemm *g, const void *A, const void *B,
                  void *C, bool c_f32);

/* Puts attention in one kernel, FlashAttention-3's or cuDNN's, into the bf16 table in place of
 * the tiled kernels. False: neither was built in, or neither is there. */
bool sp_cuda_attention_fused(struct sp_cuda *cuda, struct sp_backend *backend);
void sp_cuda_attention_free(struct sp_cuda_attention *attention);

struct sp_cuda_gemm *sp_cuda_gemm_create(struct sp_cuda *cuda);
void sp_cuda_gemm_free(struct sp_cuda_gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif
