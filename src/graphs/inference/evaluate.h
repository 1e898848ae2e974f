/* The loss on tokens that are not trained on. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "graphs/step.h"

/*
 * Returns in *loss the mean loss over `steps` steps' worth of `data`, from its beginning, with the
 * current weights. For data that are read once the mean is over all tokens but the first, which
 * `steps` must reach. Runs the forwards and backwards of training steps, so that every schedule can
 * evaluate as it trains and in the same memory, then clears the gradients. Must run between steps:
 * no step is begun, gradients are zero. Weights, moments and gradients end as they were, bit for
 * bit. All processes call it and learn the loss. 0 or -ENOMEM.
 */
int sp_evaluate(struct sp_graph *g, const struct sp_data *data, int steps, double *loss);

#endif
