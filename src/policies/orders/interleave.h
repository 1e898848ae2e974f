/*
 * The interleaved order of (micro-batch, chunk) that Megatron-LM's table gives (Narayanan et al.
 * 2021, section 2.2): for each group of N consecutive micro-batches, for each chunk, the
 * micro-batches of the group; the last group may be short. Backwards take the chunks in reverse.
 */
#ifndef SP_INTERLEAVE_H
#define SP_INTERLEAVE_H

#include "starpipe/schedule.h"

struct sp_slot {
    int mb, chunk;
    int size; /* micro-batches of its group */
};

/* Micro-batches of a group: the option `group`; by default p, or as little above it as leaves no
 * group shorter than p (m if m < p). *ok is cleared if the option is not a number. */
int sp_interleave_group(const struct sp_layout *lay, int *ok);

/* The k-th forward, and the k-th backward, 0 <= k < m v. */
struct sp_slot sp_interleave_forward(const struct sp_layout *lay, int group, int k);
struct sp_slot sp_interleave_backward(const struct sp_layout *lay, int group, int k);

#endif
