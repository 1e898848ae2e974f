#ifndef SP_ALIGNED_H
#define SP_ALIGNED_H

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
