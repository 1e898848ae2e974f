/* The loss on tokens that are not trained on. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "graphs/step.h"

/*
 * Mean loss over `steps` steps' worth of `data`, from its beginning, with the weights as they are; of data that are
 * read once over their tokens but the first, which `steps` must reach. Runs the forwards and the backwards of training
 * steps, so that every schedule can do it as it trains, and in the same memory; then forgets the gradients. Between
 * steps: no step is begun, gradients are zero. Weights, moments and gradients are afterwards what they were, bit for
 * bit. All processes call it and learn the loss. 0 or -ENOMEM.
 */
int sp_evaluate(struct sp_graph *g, const struct sp_data *data, int steps, double *loss);

#endif
