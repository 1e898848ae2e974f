/* Counts for the turns of a weight ring. */
#ifndef SP_ROUNDS_H
#define SP_ROUNDS_H

#include "starpipe/schedule.h"

/* Chunks of the whole model. A worker receives every one of them in each pass of a round. */
static inline int sp_chunks_of_model(const struct sp_layout *lay)
{
    return lay->stages * lay->chunks;
}

/* Rounds of micro-batches; in the last one some workers may have none. */
static inline int sp_rounds(const struct sp_layout *lay)
{
    return (lay->micro_batches + lay->stages - 1) / lay->stages;
}

/* The turns of weipipe-naive, which TawPipe has too: a worker takes one micro-batch forward through
 * all chunks, then back, then the next. As struct sp_weight_ring_def has it. */
int sp_turn_one_by_one(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS]);

#endif
