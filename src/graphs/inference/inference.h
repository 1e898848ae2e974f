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

/* The stage of a layer, of as many stages as there are layers at most. */
static inline int sp_generator_stage(const struct sp_model *m, int stages, int layer)
{
    return (int)((int64_t)layer * stages / m->layers);
}

/* Does a stage read this block? `layer` -1: one outside the layers. */
static inline bool sp_generator_holds(const struct sp_model *m, int stages, int stage,
                                      enum sp_block_kind kind, int layer)
{
    bool first = kind == SP_BLOCK_TOKENS || kind == SP_BLOCK_POSITIONS;

    if (layer >= 0)
        return sp_generator_stage(m, stages, layer) == stage;
    return (first && stage == 0) || ((!first || kind == sp_head_table(m)) && stage == stages - 1);
}

/*
 * All ranks call it, between steps. `weights`: the plan's stages divide the layers, and every
 * process reads the blocks of its own from this file; those of the graph need no values. NULL:
 * gathers the weights of the graph on rank 0, one block at a time; *gen is NULL on the other ranks.
 * `window`: positions that the model knows; at most the last `window` tokens fed count. `slices`: as
 * in struct sp_sampling. 0 or -errno.
 */
int sp_generator_create(struct sp_graph *g, const struct sp_st_file *weights, int window,
                        int slices, struct sp_generator **gen);
/* `gen` may be NULL. To be called before its graph is destroyed; on rank 0 it ends
 * sp_generator_follow of the others. */
void sp_generator_destroy(struct sp_generator *gen);

/* Takes part in what rank 0 feeds, on the other ranks. `gen` may be NULL. */
void sp_generator_follow(struct sp_generator *gen);

/*
 * Rank 0 feeds n > 0 tokens behind those fed before; writes logits(V) of the token after the last of
 * them. When the window is full, it begins again with the later half of its tokens.
 */
void sp_generator_feed(struct sp_generator *gen, const int32_t *tokens, int n, float *logits);

#endif
