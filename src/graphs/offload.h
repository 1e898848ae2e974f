/*
 * What leaves memory of a layerwise stage and returns, by the plan of offload/eviction.h. All of it does
 * nothing in a run without offloading.
 */
#ifndef SP_GRAPH_OFFLOAD_H
#define SP_GRAPH_OFFLOAD_H

#include "graphs/op.h"

/* The next task of the op begins its k-th slot: what returns then is fetched from its start on. */
void sp_offload_slot(struct sp_op_ctx *c, int k);

/* The next task of the op begins its k-th slot, and waits until what must have left by then has. */
void sp_offload_gate(struct sp_op_ctx *c, int k);

/* The forward of layer i is submitted: what leaves of it goes as soon as its tasks have ended. */
void sp_offload_leave(struct sp_op_ctx *c, int i);

/* Room for what moves on a stage. 0 or -ENOMEM. */
int sp_offload_stage_create(struct sp_graph *g, struct sp_stage *st);
void sp_offload_stage_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
