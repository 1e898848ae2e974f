/* Attention of a shape by cuDNN, planned once and run whole or in parts. */
#ifndef SP_CUDNN_PLANS_H
#define SP_CUDNN_PLANS_H

#include "kernels/backend.h"
#include "kernels/cuda/attention/cudnn_plan.h"
#include <stdint.h>

/* ---- cuts into parts, so that the workspace stays within bounds: arithmetic alone ---- */

enum { SP_CUDNN_PIECES = 32 /* of queries, at most: each is a shape to plan */ };

/* A part: some sequences, key heads, query heads of one key head, and queries at a time. */
struct sp_cudnn_parts {
    struct sp_fused_shape whole, part;
    int pieces; /* number of pieces of the queries, of part.q_len each; the first is the rest */
};

static inline struct sp_cudnn_parts sp_cudnn_whole(const struct sp_fused_shape *shape)
{
    return (struct sp_cudnn_parts){.whole = *shape, .part = *shape, .pieces = 1};
}

/* Number of query heads that share a key head. */
static inline int sp_cudnn_group(const struct sp_fused_shape *s)
{
    return s->heads / s->kv_heads;
}

/* The workspace above which a plan takes less at a time, on a device with so much memory. */
size_t sp_cudnn_most_bytes(size_t device_bytes);
bool sp_cudnn_fits(size_t bytes, size_t most_bytes);

/* Takes less at a time, so that a plan needs `most_bytes` instead of `bytes`; false if there is
 * no less. */
bool sp_cudnn_take_less(struct sp_cudnn_parts *parts, size_t bytes, size_t most_bytes);

/* The first query of piece i, and the shape to plan for it. The last piece has the most keys. */
int sp_cudnn_piece_first(const struct sp_cudnn_parts *parts, int i);
struct sp_fused_shape sp_cudnn_piece(const struct sp_cudnn_parts *parts, int i);

/* True if several runs of a plan add to the same dK and dV; true if they need a copy of lse. */
bool sp_cudnn_sums(const struct sp_cudnn_parts *parts);
bool sp_cudnn_copies_lse(const struct sp_cudnn_parts *parts);

/* Elements of a part's dK and dV, dense. */
size_t sp_cudnn_gradient_elements(const struct sp_fused_shape *part);

/* Offsets in the workspace, behind the plan's own bytes: a copy of lse; dK and dV of one run in
 * bf16; their sum in f32. */
struct sp_cudnn_places {
    size_t lse, low, sum, end;
};

struct sp_cudnn_places sp_cudnn_places(const struct sp_cudnn_parts *parts, size_t plan_bytes);

/* A bound on the workspace for `shape`, if a plan may take `most_bytes`; 0: it needs more than
 * SP_CUDNN_PIECES pieces, and is not done. */
size_t sp_cudnn_bound(const struct sp_fused_shape *shape, size_t most_bytes);

/* Rounds up to where the next part of a workspace may begin. */
static inline size_t sp_cudnn_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* ---- plans ---- */

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
