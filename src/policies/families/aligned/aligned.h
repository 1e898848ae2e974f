/* Functions of struct sp_family that the aligned family has in place of the layerwise ones. */
#ifndef SP_ALIGNED_H
#define SP_ALIGNED_H

#include "policies/families/aligned/slots.h"
#include "policies/lowering/lowering.h"

/* The producers of a layerwise op, and the last ops before the slot of the stages with which it
 * shares attention. */
int sp_aligned_run_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                        struct sp_dep out[SP_MAX_DEPS]);
double sp_aligned_turn(const struct sp_layout *lay, int stage, const struct sp_op *op);
int sp_aligned_unit(const struct sp_lowering *l, int i);
void sp_aligned_lower(struct sp_lowering *l, int i);

/*
 * A part is the piece of an op between two exchanges. A forward has two for each layer: up to q, k
 * and v; then attention, of the stage's own slice and of those that it assists. A backward has: up
 * to the gradient of attention's output; then attention. The first part of a layer begins with the
 * rest of the layer before; one more part follows the last layer.
 */
static inline int sp_aligned_parts(int layers)
{
    return 2 * layers + 1;
}

#endif
