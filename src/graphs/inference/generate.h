/*
 * Computes logits of the next token, for sampling, from the weights of a graph or a file. Runs the
 * tasks of a training forward on one sequence and keeps its keys and values from call to call.
 */
#ifndef SP_GENERATE_H
#define SP_GENERATE_H

#include "graphs/graph.h"
#include "model/files/weights.h"

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
