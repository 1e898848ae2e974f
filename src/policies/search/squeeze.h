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
 * orders found from it, for the costs of the layout, and from `other` (NULL: none), an order of the
 * same ops. No stage i holds more than limit[i] activations of a chunk, in the orders given or
 * found. An order is better with a shorter makespan, then with shorter spans of the stages, then
 * with less memory. `as_is` saves time: it limits the searches from `other` to those that begin by
 * keeping it. Deterministic. 0, or -ENOMEM with the programs unchanged.
 */
int sp_squeeze(const struct sp_layout *lay, struct sp_program *programs,
               const struct sp_program *other, bool as_is, const int *limit);

#endif
