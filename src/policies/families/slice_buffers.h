/* Buffers of a stage whose sequences are cut into slices, or parts of slices: one pool for each
 * length. */
#ifndef SP_SLICE_BUFFERS_H
#define SP_SLICE_BUFFERS_H

#include "model/stash.h"
#include "policies/plan.h"

/* True if ops on slices of any length may share buffers of the longest slice. This holds for
 * tensors that an op takes and gives back itself; those that stages or devices send each other have
 * the sizes of their messages. */
bool sp_slices_take_turns(const struct sp_plan *plan, const struct sp_shape *sh);

/* Writes the shape of the longest slice to `slice`. */
void sp_memory_longest_slice(const struct sp_plan *plan, const struct sp_shape *sh,
                             struct sp_shape *slice);

#endif
