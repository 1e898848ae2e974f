/* Shared by the tests of the fake CUDA runtime in one process. */
#ifndef SP_FAKE_RUNTIME_H
#define SP_FAKE_RUNTIME_H

#include "scene.h"
#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { MIB = 1 << 20 };

#define OK(call) assert_int_equal(call, cudaSuccess)

/* A kernel that holds its stream until the test lets it go. */
struct gate {
    atomic_bool open;
};

static inline void CUDART_CB stand(void *arg)
{
    struct gate *g = arg;

    while (!g->open)
        sched_yield();
}

/* Called first in main: sets up two devices of 64 MiB. */
static inline void fake_devices(int argc, char **argv)
{
    scene_main(argc, argv, NULL, 0);
    setenv("SP_FAKE_GPUS", "2", 1);
    setenv("SP_FAKE_GPU_MEM", "64M", 1);
}

#endif
