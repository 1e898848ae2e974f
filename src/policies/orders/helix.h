/* HelixPipe's loops one into the other (helix.c, helix_bounded.c). */
#ifndef SP_HELIX_H
#define SP_HELIX_H

#include "policies/plan.h"

/* Appends a stage's forwards of the loop of micro-batches that begins with `first`. */
typedef void (*sp_helix_loop_fn)(const struct sp_layout *lay, int stage, int first,
                                 struct sp_program *prog);

/* Programs in which the forwards of a loop of stages * fold micro-batches run while the backwards of the one before it do:
 * a stage never holds much more than one loop. 0 or -ENOMEM. */
int sp_helix_bounded(const struct sp_layout *lay, int fold, sp_helix_loop_fn loop,
                     struct sp_program *programs);

#endif
