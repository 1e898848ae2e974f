/*
 * FlashAttention-3 (Shah et al. 2024, arXiv:2407.08608): the fastest attention on Hopper GPUs, with
 * a deterministic backward whose workspace grows with the sequence, not with its square. It is
 * built from its own sources if configure was given them; without them these functions compute
 * nothing.
 */
#ifndef SP_FLASH3_H
#define SP_FLASH3_H

#include "kernels/cuda/attention/fused.h"

struct sp_cuda; /* kernels/cuda/device/device.h */

#ifdef __cplusplus
extern "C" {
#endif

#ifdef HAVE_FLASH3
/* True if the device is a Hopper and kernels were built. */
bool sp_flash3_usable(int device);

/* Bytes of workspace, aligned to 256; 0: there are no kernels for the shape. */
size_t sp_flash3_bytes(const struct sp_fused_shape *shape);

/* Queues the attention on the worker's stream. False, and *why, if it is refused. */
bool sp_flash3_run(const struct sp_cuda *cuda, const struct sp_fused_shape *shape,
                   const struct sp_fused_tensors *tensors, void *workspace, const char **why);

/* The kernels that were built, or "no"; for `starpipe info`. */
const char *sp_flash3_about(void);
#else
static inline bool sp_flash3_usable(int device)
{
    (void)device;
    return false;
}

static inline size_t sp_flash3_bytes(const struct sp_fused_shape *shape)
{
    (void)shape;
    return 0;
}

static inline bool sp_flash3_run(const struct sp_cuda *cuda, const struct sp_fused_shape *shape,
                                 const struct sp_fused_tensors *tensors, void *workspace,
                                 const char **why)
{
    (void)cuda, (void)shape, (void)tensors, (void)workspace;
    *why = "it was not built";
    return false;
}

static inline const char *sp_flash3_about(void)
{
    return "no";
}
#endif

#ifdef __cplusplus
}
#endif

#endif
