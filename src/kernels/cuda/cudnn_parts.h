/* Attention of a shape by cuDNN, whole or a part of its sequences, heads and queries at a time. */
#ifndef SP_CUDNN_PARTS_H
#define SP_CUDNN_PARTS_H

#include "kernels/backend.h"
#include "kernels/cuda/cudnn_plan.h"
#include <stdint.h>

/* Of a worker. */
struct sp_cudnn_plans {
    struct sp_cudnn *cudnn;
    size_t most_bytes; /* of a plan's workspace: what needs more is done in parts */
    struct sp_cudnn_known *known;
    bool warned; /* that something is left to slower kernels */
};

enum { SP_CUDNN_PIECES = 32 /* of queries, at most: each is a shape to plan */ };

/* A shape met before, and what cuDNN does for it. */
struct sp_cudnn_known {
    struct sp_cudnn_shape whole, part; /* sequences, heads and queries at a time */
    int pieces;                        /* that the queries of a part are cut into; 0: nothing */
    struct sp_cudnn_plan *plan[SP_CUDNN_PIECES]; /* in the order of the queries */
    size_t plan_bytes, workspace_bytes;          /* of a plan, of sp_cudnn_run */
    struct sp_cudnn_known *next;
};

/* Workspace of a plan above which parts are taken, on a device with so much memory. */
size_t sp_cudnn_most_bytes(size_t device_bytes);

/* At most this much workspace is needed for `shape`, if `most_bytes` is the most for a plan; 0: it needs
 * more than SP_CUDNN_PIECES, and is not done. */
size_t sp_cudnn_bound(const struct sp_cudnn_shape *shape, size_t most_bytes);

/* Plans a shape that is new, in a second or so for each piece. NULL, after a warning the first time: cuDNN does
 * not compute it, or only with more memory than it is worth. */
const struct sp_cudnn_known *sp_cudnn_find(struct sp_cudnn_plans *plans,
                                           const struct sp_cudnn_shape *shape);

/* Queues all parts; `tensors` has the addresses of the whole. */
void sp_cudnn_run(const struct sp_backend *k, struct sp_cudnn_plans *plans,
                  const struct sp_cudnn_known *known, const struct sp_cudnn_tensors *tensors,
                  void *workspace);

void sp_cudnn_forget(struct sp_cudnn_plans *plans);

/* The address `elements` of bf16 further. */
static inline void *sp_cudnn_offset(const void *x, size_t elements)
{
    return (char *)(uintptr_t)x + 2 * elements;
}

/* Up to where the next part of a workspace may begin. */
static inline size_t sp_cudnn_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

#endif
