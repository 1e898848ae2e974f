/*
 * A cuDNN whose plans the CPU carries out, from the strides they were made with. A promise that is
 * broken fails the test: alignments, outputs that lie where inputs do, workspace used by two.
 */
#ifndef SP_TESTS_FAKE_CUDNN_H
#define SP_TESTS_FAKE_CUDNN_H

#include "kernels/cuda/attention/cudnn_plan.h"

struct sp_fake_cudnn {
    bool absent, refuse_shapes, refuse_runs;
    double bytes; /* workspace of a deterministic backward, for each score */
    int opened, created, alive, runs;
};

extern struct sp_fake_cudnn sp_fake_cudnn;

/* A FlashAttention-3 that computes likewise, heads of that size alone; 0: there is none. */
struct sp_fake_flash3 {
    int head_dim;
    bool refuse_runs;
    int runs, deterministic; /* of the last */
};

extern struct sp_fake_flash3 sp_fake_flash3;

#endif
