/* Attention of a shape by cuDNN, planned once and run whole or in parts. */
#ifndef SP_CUDNN_PLANS_H
#define SP_CUDNN_PLANS_H

#include "kernels/backend.h"
#include "kernels/cuda/attention/cudnn_parts.h"
#include <stdint.h>

/* The plans of a worker. */
struct sp_cudnn_plans {
    struct sp_cudnn *cudnn;
    size_t most_bytes; /* of a plan's workspace: shapes that need more are done in parts */
    struct sp_cudnn_known *known;
    bool warned; /* that slower kernels do some shape */
};

/* A shape that was asked for before, and cuDNN's plans for it. */
struct sp_cudnn_known {
    struct sp_cudnn_parts parts;                 /* pieces 0: cuDNN does not do it */
    struct sp_cudnn_plan *plan[SP_CUDNN_PIECES]; /* in the order of the queries */
    size_t plan_bytes, workspace_bytes;          /* of a plan, of sp_cudnn_run */
    struct sp_cudnn_known *next;
};

/* Finds a shape; plans it if it is new, which takes about a second for each piece. NULL, after a
 * warning the first time: cuDNN does not compute it, or only with more memory than it is worth. */
const struct sp_cudnn_known *sp_cudnn_find(struct sp_cudnn_plans *plans,
                                           const struct sp_fused_shape *shape);

/* Queues all parts; `tensors` has the addresses of the undivided tensors. */
void sp_cudnn_run(const struct sp_backend *k, struct sp_cudnn_plans *plans,
                  const struct sp_cudnn_known *known, const struct sp_fused_tensors *tensors,
                  void *workspace);

void sp_cudnn_forget(struct sp_cudnn_plans *plans);

/* The address of the bf16 element `elements` after x. */
static inline void *sp_cudnn_offset(const void *x, size_t elements)
{
    return (char *)(uintptr_t)x + 2 * elements;
}

#endif
