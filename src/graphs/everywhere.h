/* Gradients of blocks that every stage has a replica of, summed without a collective. */
#ifndef SP_EVERYWHERE_H
#define SP_EVERYWHERE_H

#include "graphs/graph.h"

/*
 * Submits the sums: each stage adds its gradient to what the stage before it passed on, and the last
 * one's sum goes around once more. One order of additions whatever the processes, so the same bits.
 */
void sp_sum_everywhere(struct sp_graph *g);

#endif
