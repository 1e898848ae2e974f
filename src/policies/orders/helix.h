/* HelixPipe with overlapping loops (helix.c, helix_bounded.c). */
#ifndef SP_HELIX_H
#define SP_HELIX_H

#include "policies/plan.h"

/* Appends a stage's forwards of the loop of micro-batches that begins with `first`. */
typedef void (*sp_helix_loop_fn)(const struct sp_layout *lay, int stage, int first,
                                 struct sp_program *prog);

/* Makes programs in which the forwards of a loop of stages * fold micro-batches run beside the
 * backwards of the loop before, so that a stage never holds much more than one loop. 0 or
 * -ENOMEM. */
int sp_helix_bounded(const struct sp_layout *lay, int fold, sp_helix_loop_fn loop,
                     struct sp_program *programs);

#endif
