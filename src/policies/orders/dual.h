/*
 * The eight steps that DualPipe and DualPipeV share (DeepSeek-V3, 2024). A stage has two phases,
 * 0 and 1, that are the two directions of DualPipe and the two arms of the V of DualPipeV.
 */
#ifndef SP_DUAL_H
#define SP_DUAL_H

#include "starpipe/schedule.h"

struct sp_dual {
    int ranks;         /* stages from the end of the pipe to its turning point */
    int rank;          /* 0 at the end, ranks - 1 at the turning point */
    int micro_batches; /* of each phase, at least 2 * ranks */
    int chunk[2];      /* of each phase */
    int first[2];      /* micro-batch of each phase */
};

void sp_dual_emit(const struct sp_dual *dual, struct sp_program *prog);

#endif
