/* Turns in which a worker takes one micro-batch forward through all chunks, then back, then the
 * next. */
#ifndef SP_ONE_BY_ONE_H
#define SP_ONE_BY_ONE_H

#include "starpipe/schedule.h"

/* As struct sp_weight_ring_def has it. */
int sp_turn_one_by_one(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS]);

#endif
