/* Gradients of blocks that every stage has a replica of, summed without a collective. */
#ifndef SP_EVERYWHERE_H
#define SP_EVERYWHERE_H

#include "graphs/graph.h"

/*
 * Submits the sums: each stage adds its gradient to what the stage before it passed on, and the last
 * one's sum goes around once more. One order of additions whatever the processes, so the same bits.
 */
void sp_everywhere_sum(struct sp_graph *g);

/* The first half for one stage, ahead of the end of the step: its own gradients are whole, and the
 * stages before it have been through this. */
void sp_everywhere_add(struct sp_graph *g, struct sp_stage *st);

#endif
