/* Uses of a graph without training: the loss on other tokens, and logits of the next one. */
#ifndef SP_INFERENCE_H
#define SP_INFERENCE_H

#include "graphs/step.h"
#include "model/files/weights.h"

/*
 * Returns in *loss the mean loss over `steps` steps' worth of `data`, from its beginning, with the
 * current weights, on tokens that are not trained on. For data that are read once the mean is over all tokens but the first, which
 * `steps` must reach. Runs the forwards and backwards of training steps, so that every schedule can
 * evaluate as it trains and in the same memory, then clears the gradients. Must run between steps:
 * no step is begun, gradients are zero. Weights, moments and gradients end as they were, bit for
 * bit. All processes call it and learn the loss. 0 or -ENOMEM.
 */
int sp_evaluate(struct sp_graph *g, const struct sp_data *data, int steps, double *loss);

/*
 * Computes logits of the next token, for sampling, from the weights of a graph or a file. Runs the
 * tasks of a training forward on one sequence and keeps its keys and values from call to call.
 */

struct sp_generator;

/*
 * Gathers the weights on rank 0, one block at a time; all ranks call it, between steps. *gen is
 * NULL on the other ranks. `weights`, if not NULL: a single process reads the weights from this
 * file, and those of the graph need no values. `window`: positions that the model knows; at most
 * the last `window` tokens fed count. 0 or -errno.
 */
int sp_generator_create(struct sp_graph *g, const struct sp_st_file *weights, int window,
                        struct sp_generator **gen);
/* `gen` may be NULL. To be called before its graph is destroyed. */
void sp_generator_destroy(struct sp_generator *gen);

/*
 * Feeds n > 0 tokens in one forward, behind those fed before; writes logits(V) of the token after
 * the last of them. When the window is full, it begins again with the later half of its tokens.
 */
void sp_generator_feed(struct sp_generator *gen, const int32_t *tokens, int n, float *logits);

#endif
