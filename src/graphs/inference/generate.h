/*
 * Logits of the next token from the weights of a graph, or of a file, for sampling: the tasks of a training
 * forward on one sequence, whose keys and values are kept from call to call.
 */
#ifndef SP_GENERATE_H
#define SP_GENERATE_H

#include "graphs/graph.h"
#include "model/files/weights.h"

struct sp_generator;

/*
 * Gathers the weights on rank 0, one block at a time; all ranks call it, between steps. *gen is
 * NULL on the others. `weights`: they are read from this file instead, by a process alone, and those of the graph need
 * have no values; else NULL. `window`: positions that the model knows, of those fed at most the last.
 * 0 or -errno.
 */
int sp_generator_create(struct sp_graph *g, const struct sp_st_file *weights, int window,
                        struct sp_generator **gen);
/* `gen` may be NULL. Before its graph is destroyed. */
void sp_generator_destroy(struct sp_generator *gen);

/*
 * Feeds n > 0 tokens, all in one forward, behind those fed before: logits(V) = what comes after
 * the last of them. When the window is full, it begins again with the later half of its tokens.
 */
void sp_generator_feed(struct sp_generator *gen, const int32_t *tokens, int n, float *logits);

#endif
