/*
 * A fake GPU for tests: memory of the process, streams as queues that threads run in order, and
 * events. It has enough of CUDA's runtime for src/transport/nccl/nccl_device.c; fake_nccl.c puts
 * its transfers into the streams.
 *
 * FAKE_CUDA_QUEUES=K: all streams share K queues, as on a GPU. A queue runs its ops in order, and
 * an op that must wait for an earlier one of its own stream stops all behind it.
 */
#ifndef SP_TESTS_FAKE_CUDA_H
#define SP_TESTS_FAKE_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct fake_op {
    struct fake_op *next;
    cudaStream_t stream;
    /* Runs the op in a thread of the stream and frees it. False: the op never ends, nor do those
     * after it. */
    bool (*run)(struct fake_op *op);
    bool record; /* of an event: no kernel, so no queue waits before it */
};

void fake_stream_push(cudaStream_t stream, struct fake_op *op);

#endif
