/* Buffers of a stage where sequences are cut into slices, or parts of them: one pool of each length. */
#ifndef SP_SLICE_BUFFERS_H
#define SP_SLICE_BUFFERS_H

#include "model/stash.h"
#include "policies/plan.h"

/* Whether ops on slices of all lengths may take turns with buffers of the longest one, for what they take and give back
 * themselves; not where stages or devices send each other such tensors, which have the sizes of their messages. */
bool sp_slices_take_turns(const struct sp_plan *plan, const struct sp_shape *sh);

/* The longest slice. */
void sp_memory_longest_slice(const struct sp_plan *plan, const struct sp_shape *sh,
                             struct sp_shape *slice);

#endif
