/*
 * Memory of a run that offloads: every buffer takes whole pages (offload/host.h), which matters for
 * short slices. Pure.
 */
#ifndef SP_OFFLOAD_PAGES_H
#define SP_OFFLOAD_PAGES_H

#include "policies/families/activations.h"
#include "offload/host.h"
#include "plan/memory.h"

static inline int64_t sp_pages(int64_t bytes)
{
    return (int64_t)sp_host_round((size_t)bytes);
}

/* Bytes of a buffer of `width` columns with one row a token, in whole pages. */
static inline int64_t sp_pages_of(const struct sp_shape *sh, int64_t width)
{
    return sp_pages((int64_t)sp_shape_elem(sh) * sh->rows * width);
}

/* Does what sp_stash_of_layer does, in whole pages. */
void sp_pages_of_layer(const struct sp_shape *part, enum sp_recompute recompute, bool keeps_x,
                       bool sliced, int64_t bytes[SP_STASH_TENSORS]);

/* True if weights are sent to the stages that keep micro-batches. */
bool sp_weights_travel(const struct sp_plan *plan);

/* Memory of a stage besides activations: parameters with optimizer, and workspace. `held`: its
 * memory if nothing is evicted. */
struct sp_memory sp_pages_fixed(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                const struct sp_memory *held);

/* The most bytes of free host buffers that are kept for the next tensor of their size. */
int64_t sp_offload_idle_bytes(const struct sp_plan *plan, const struct sp_shape *sh);

#endif
