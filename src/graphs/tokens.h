/* The tokens of a step: puts ids and targets of each micro-batch where embedding and head read
 * them. */
#ifndef SP_GRAPH_TOKENS_H
#define SP_GRAPH_TOKENS_H

#include "graphs/graph.h"

/* Creates the handles of both turns, for the parts of embedding and head that this process has. 0
 * or -ENOMEM. */
int sp_tokens_create(struct sp_graph *g);
void sp_tokens_destroy(struct sp_graph *g);

/* The targets of a stage that has the head or a part of it: [micro_batches][slices][shares]. */
struct sp_tensor **sp_stage_targets(const struct sp_graph *g, const struct sp_stage *st);

/* Writes the tokens of all micro-batches of step k: sample n = ((k D + q) M + i) B + b is row b of
 * micro-batch i in pipeline q of D. Pipelines that split sequences count as one, with the same
 * samples. */
void sp_tokens_fill(struct sp_graph *g, const struct sp_data *data, uint64_t k);

#endif
