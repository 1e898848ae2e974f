/* The tokens of a step: each micro-batch's ids and targets, put where the ends of the model read them. */
#ifndef SP_GRAPH_TOKENS_H
#define SP_GRAPH_TOKENS_H

#include "graphs/graph.h"

/* Of both turns, in what this process has of the ends of the model. 0 or -ENOMEM. */
int sp_tokens_create(struct sp_graph *g);
void sp_tokens_destroy(struct sp_graph *g);

/* Where a stage that has a head, or a share of it, finds its targets: of each micro-batch, each slice. */
struct sp_tensor **sp_stage_targets(const struct sp_graph *g, const struct sp_stage *st);

/* The rows of every micro-batch of step k: of pipeline q of D sample n = ((k D + q) M + i) B + b; those that share
 * sequences have the same samples. */
void sp_tokens_fill(struct sp_graph *g, const struct sp_data *data, uint64_t k);

#endif
