/*
 * Memory of a run that offloads, in whole pages: every buffer is of some (offload/host.h), which counts
 * where slices are short. Pure.
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

/* A buffer of so many columns, a row a token. */
static inline int64_t sp_pages_of(const struct sp_shape *sh, int64_t width)
{
    return sp_pages((int64_t)sp_shape_elem(sh) * sh->rows * width);
}

/* sp_stash_of_layer. */
void sp_pages_of_layer(const struct sp_shape *part, enum sp_recompute recompute, bool keeps_x,
                       bool sliced, int64_t bytes[SP_STASH_TENSORS]);

/* True if weights come to the stages that keep micro-batches. */
bool sp_weights_travel(const struct sp_plan *plan);

/* What a stage holds besides activations, of what it holds if nothing leaves: parameters with optimizer, workspace. */
struct sp_memory sp_pages_fixed(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                const struct sp_memory *held);

/* Free buffers of host memory that are kept for the next tensor of their size, at most. */
int64_t sp_offload_idle_bytes(const struct sp_plan *plan, const struct sp_shape *sh);

#endif
