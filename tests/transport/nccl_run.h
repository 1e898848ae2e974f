/*
 * Random messages between ranks that are threads of this process, over src/transport/nccl/nccl_messages.c with what
 * stands for StarPU, CUDA, NCCL and MPI.
 */
#ifndef SP_TESTS_NCCL_RUN_H
#define SP_TESTS_NCCL_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct nccl_run {
    uint64_t seed;
    int ranks, messages, depth;
    /* Every message has handles of its own, and each rank submits its ends in an order of its own.
     * Otherwise all submit in one order, and take a few handles in turn. */
    bool any_order;
};

enum nccl_outcome { NCCL_RIGHT, NCCL_FAILED = 3, NCCL_WRONG_DATA, NCCL_LOST };

/* Runs it. A message that fails, or wrong data, ends the process with its outcome. */
enum nccl_outcome nccl_run(const struct nccl_run *run);

#endif
