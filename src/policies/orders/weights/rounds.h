/* What the turns of weights that come by are counted in. */
#ifndef SP_ROUNDS_H
#define SP_ROUNDS_H

#include "starpipe/schedule.h"

/* Chunks of the whole model: every one of them comes by in each pass of a round. */
static inline int sp_chunks_of_model(const struct sp_layout *lay)
{
    return lay->stages * lay->chunks;
}

/* Micro-batches of a worker; the last round may be of fewer workers. */
static inline int sp_rounds(const struct sp_layout *lay)
{
    return (lay->micro_batches + lay->stages - 1) / lay->stages;
}

#endif
