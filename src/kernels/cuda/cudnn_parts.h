/* Attention of a shape by cuDNN, whole or a part of its sequences and heads at a time. */
#ifndef SP_CUDNN_PARTS_H
#define SP_CUDNN_PARTS_H

#include "kernels/cuda/cudnn_plan.h"
#include <stdint.h>

/* Of a worker. */
struct sp_cudnn_plans {
    struct sp_cudnn *cudnn;
    struct sp_cudnn_known *known;
    bool warned; /* that something is left to slower kernels */
};

/* A shape met before, and what cuDNN does for it: `part` of it at a time. */
struct sp_cudnn_known {
    struct sp_cudnn_shape whole, part;
    struct sp_cudnn_plan *plan; /* NULL: nothing */
    size_t workspace_bytes;
    struct sp_cudnn_known *next;
};

/* Plans a shape that is new, in a second or so. NULL, after a warning the first time: cuDNN does
 * not compute it, or only with more memory than it is worth. */
const struct sp_cudnn_known *sp_cudnn_find(struct sp_cudnn_plans *plans,
                                           const struct sp_cudnn_shape *shape);

/* Queues all parts; `tensors` has the addresses of the whole. */
void sp_cudnn_run(struct sp_cudnn_plans *plans, const struct sp_cudnn_known *known,
                  const struct sp_cudnn_tensors *tensors, void *workspace);

void sp_cudnn_forget(struct sp_cudnn_plans *plans);

/* The address `elements` of bf16 further. */
static inline void *sp_cudnn_offset(const void *x, size_t elements)
{
    return (char *)(uintptr_t)x + 2 * elements;
}

#endif
