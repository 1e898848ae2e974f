/* What the family of aligned stages has beside that of layerwise ones: struct sp_family's functions. */
#ifndef SP_ALIGNED_H
#define SP_ALIGNED_H

#include "policies/families/aligned/slots.h"
#include "policies/lowering/lowering.h"

/* Beside what a layerwise op waits for: what those whose attention it shares did before. */
int sp_aligned_run_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                        struct sp_dep out[SP_MAX_DEPS]);
double sp_aligned_turn(const struct sp_layout *lay, int stage, const struct sp_op *op);
int sp_aligned_unit(const struct sp_lowering *l, int i);
void sp_aligned_lower(struct sp_lowering *l, int i);

/*
 * A leg is what of an op comes between two exchanges. A forward's of each layer: up to q, k and v; then attention, of
 * the stage's own slice and of those that it helps with. A backward's: up to the gradient of attention's output; then
 * attention. The first one of a layer begins with the rest of the layer before, and after the last layer comes one
 * more.
 */
static inline int sp_aligned_parts(int layers)
{
    return 2 * layers + 1;
}

#endif
