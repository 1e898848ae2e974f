/*
 * Random numbers that are a pure function of (seed, stream, index): no state, any part in any order.
 */
#ifndef SP_RANDOM_H
#define SP_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Elements first to first + n - 1 of a stream of normal values, n of them: w(n) = std * z.
 *
 * Philox4x32-10 (Salmon et al. 2011) with the seed for key and (i/4, stream) for counter gives four
 * uniform words, Box-Muller four normal values, of which element i takes the i%4-th. Computed in
 * double and rounded once: the same bits for every instruction set, team and part. `first` is a
 * multiple of 4.
 */
void sp_normal(uint64_t seed, uint64_t stream, float std, size_t first, size_t n, float *w);

#endif
