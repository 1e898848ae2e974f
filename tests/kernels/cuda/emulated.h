/* The functions of the emulation that tests call. */
#ifndef SP_TESTS_EMULATED_H
#define SP_TESTS_EMULATED_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA kernels for one type, all but the products, on the emulated device. */
const struct sp_backend *sp_emulated_backend(enum sp_dtype dtype);

/* Sets the order in which blocks, warps and lanes run: 0 forward, 1 reverse, else some other.
 * */
void sp_emulated_order(unsigned seed);

/* Runs all queued kernels. */
void sp_emulated_wait(void);

#ifdef __cplusplus
}
#endif

#endif
