/* Buffers of a stage where sequences are cut into slices, or parts of them: one pool of each length. */
#ifndef SP_SLICE_BUFFERS_H
#define SP_SLICE_BUFFERS_H

#include "model/stash.h"
#include "policies/plan.h"

/* Rows of a buffer of every length that the stage's ops work on (`received`: or that come to its process);
 * of whole sequences sh->rows. */
int64_t sp_memory_slice_rows(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                             bool received);

/* Whether ops on slices of all lengths may take turns with buffers of the longest one, for what they take and give back
 * themselves; not where stages or devices send each other such tensors, which have the sizes of their messages. */
bool sp_slices_take_turns(const struct sp_plan *plan, const struct sp_shape *sh);

/* The longest slice. */
void sp_memory_longest_slice(const struct sp_plan *plan, const struct sp_shape *sh,
                             struct sp_shape *slice);

/* Bytes that stashed activations of several lengths take beyond their peak: the long ones are at their
 * most at another moment than the short ones. */
int64_t sp_memory_unequal(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int every, int stage);

#endif
