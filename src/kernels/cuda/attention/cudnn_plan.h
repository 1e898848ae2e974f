/*
 * cuDNN's fused attention of one shape, without any of its headers: cudnn_plan.cu translates this
 * for cuDNN, attention_fused.c knows where the tensors lie.
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

/* True if there is a libcudnn; its version, "9.19.0", or why there is none, for `starpipe info`.
 * Need no device. */
bool sp_cudnn_there(void);
const char *sp_cudnn_about(void);

/* Opens the library on the current device, queueing on `stream`; NULL: sp_cudnn_about tells why. */
struct sp_cudnn *sp_cudnn_open(cudaStream_t stream);
/* Opens the library for a device described in cuDNN's format
 * (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): it plans, and runs nothing. NULL, and *why. */
struct sp_cudnn *sp_cudnn_open_described(const char *json, const char **why);
void sp_cudnn_close(struct sp_cudnn *cudnn);

/* Compiles kernels, which takes half a second. If cuDNN has none: NULL, and *why until the next
 * call. */
struct sp_cudnn_plan *sp_cudnn_plan_create(struct sp_cudnn *cudnn,
                                           const struct sp_fused_shape *shape,
                                           size_t *workspace_bytes, const char **why);
void sp_cudnn_plan_destroy(struct sp_cudnn_plan *plan);

/* Queues the plan; all addresses are aligned to 16. False, and *why, if cuDNN refuses. */
bool sp_cudnn_plan_run(struct sp_cudnn *cudnn, const struct sp_cudnn_plan *plan,
                       const struct sp_fused_tensors *tensors, void *workspace, const char **why);

#ifdef __cplusplus
}
#endif

#endif
