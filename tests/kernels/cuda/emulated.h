/* What a test asks of the emulation. */
#ifndef SP_TESTS_EMULATED_H
#define SP_TESTS_EMULATED_H

#ifdef __cplusplus
extern "C" {
#endif

/* In which order blocks, warps and lanes run from here on: 0 forward, 1 reverse, else some other. */
void sp_emulated_order(unsigned seed);

#ifdef __cplusplus
}
#endif

#endif
