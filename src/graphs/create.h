/* Creates and destroys the graph of a run. */
#ifndef SP_GRAPH_CREATE_H
#define SP_GRAPH_CREATE_H

#include "graphs/graph.h"

/*
 * Lays out the graph on a started StarPU. Parameters are not initialised. 0, -ENOMEM, or
 * -EINVAL: a message would be too large for MPI.
 */
int sp_graph_create(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    struct sp_graph *g);
void sp_graph_destroy(struct sp_graph *g);

/* Adopts programs with the same ops in another order, between steps. 0 or -ENOMEM. */
int sp_graph_reorder(struct sp_graph *g);

#endif
