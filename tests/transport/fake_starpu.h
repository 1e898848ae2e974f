/*
 * Fake StarPU handles for tests of threads: a buffer, and the requests to acquire it in the order
 * of submission; readers share it, a writer is alone. Callbacks come late from a few threads, or at
 * once from the caller. Has only the functions that src/transport/nccl/nccl_messages.c calls.
 */
#ifndef SP_TESTS_FAKE_STARPU_H
#define SP_TESTS_FAKE_STARPU_H

#include <starpu.h>

/* A handle on `bytes` of its own, without a value. */
starpu_data_handle_t fake_handle(size_t bytes);
void fake_handle_free(starpu_data_handle_t handle);

/* Starts the threads of callbacks; `late_us`: their largest delay. */
void fake_starpu_start(int threads, int late_us, uint64_t seed);
/* To be called after the last release. */
void fake_starpu_stop(void);

#endif
