/*
 * What stands for StarPU's handles in tests of threads: a buffer, and whoever acquired it, in the order
 * of submission; readers together, writers alone. Callbacks come from a few threads, late, or at once from
 * the caller. Only what src/transport/nccl/nccl.c calls.
 */
#ifndef SP_TESTS_FAKE_STARPU_H
#define SP_TESTS_FAKE_STARPU_H

#include <starpu.h>

/* A handle on `bytes` of its own, without a value. */
starpu_data_handle_t fake_handle(size_t bytes);
void fake_handle_free(starpu_data_handle_t handle);

/* The threads of callbacks; `late_us`: up to how late they come. */
void fake_starpu_start(int threads, int late_us, uint64_t seed);
/* After the last release. */
void fake_starpu_stop(void);

#endif
