/*
 * cuDNN's fused attention of one shape, in terms that need none of its headers: cudnn_plan.cu says
 * them in cuDNN's, attention_fused.c knows where the tensors lie.
 */
#ifndef SP_CUDNN_PLAN_H
#define SP_CUDNN_PLAN_H

#include "kernels/cuda/attention/fused.h"
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sp_cudnn;
struct sp_cudnn_plan;

/* Whether there is one; "9.19.0", or why not: for `starpipe info`. Need no device. */
bool sp_cudnn_there(void);
const char *sp_cudnn_about(void);

/* The library on the current device, queueing on `stream`; NULL: sp_cudnn_about tells why. */
struct sp_cudnn *sp_cudnn_open(cudaStream_t stream);
/* The library for a device that is described as cuDNN writes it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION):
 * it plans, and runs nothing. NULL, and *why. */
struct sp_cudnn *sp_cudnn_open_described(const char *json, const char **why);
void sp_cudnn_close(struct sp_cudnn *cudnn);

/* Compiles kernels, half a second. NULL, and *why until the next call, if cuDNN has none. */
struct sp_cudnn_plan *sp_cudnn_plan_create(struct sp_cudnn *cudnn,
                                           const struct sp_fused_shape *shape,
                                           size_t *workspace_bytes, const char **why);
void sp_cudnn_plan_destroy(struct sp_cudnn_plan *plan);

/* Queues it; all addresses aligned to 16. False, and *why, if cuDNN refuses. */
bool sp_cudnn_plan_run(struct sp_cudnn *cudnn, const struct sp_cudnn_plan *plan,
                       const struct sp_fused_tensors *tensors, void *workspace, const char **why);

#ifdef __cplusplus
}
#endif

#endif
