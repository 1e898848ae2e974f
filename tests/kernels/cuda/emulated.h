/* What a test asks of the emulation. */
#ifndef SP_TESTS_EMULATED_H
#define SP_TESTS_EMULATED_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA kernels for one type, all but the products, on the emulated device. */
const struct sp_backend *sp_emulated_backend(enum sp_dtype dtype);

/* In which order blocks, warps and lanes run from here on: 0 forward, 1 reverse, else some other.
 * */
void sp_emulated_order(unsigned seed);

/* Runs what is queued. */
void sp_emulated_wait(void);

#ifdef __cplusplus
}
#endif

#endif
