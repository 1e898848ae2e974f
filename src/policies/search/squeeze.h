/* Orders made shorter without more memory. */
#ifndef SP_SQUEEZE_H
#define SP_SQUEEZE_H

#include "starpipe/schedule.h"
#include <stdbool.h>

/* Most activations of a chunk alive at once in a program: taken at F, released at W, or at B where
 * there is no W. */
int sp_squeeze_peak(const struct sp_program *prog);

/*
 * Replaces the programs[stages], a legal order of the layerwise family, by the best of several
 * found from it, and from `other` (NULL: none), an order of the same ops, for the costs of the
 * layout. No stage i holds more than limit[i] activations of a chunk; as given it does not either.
 * Better is the shorter makespan, then the shorter spans of the stages, then less memory. With
 * `as_is` only the searches that begin by keeping `other` are made from it, which saves time.
 * Deterministic. 0, or -ENOMEM and the programs are as they were.
 */
int sp_squeeze(const struct sp_layout *lay, struct sp_program *programs,
               const struct sp_program *other, bool as_is, const int *limit);

#endif
