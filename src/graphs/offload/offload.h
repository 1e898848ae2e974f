/*
 * EVICT and FETCH of a stage's activations, at the moments that offload/eviction.h chose, which lie
 * between the tasks of ops. All functions do nothing in a run without offloading.
 */
#ifndef SP_GRAPH_OFFLOAD_H
#define SP_GRAPH_OFFLOAD_H

#include "graphs/op.h"

/* The next task of the op begins its k-th slot: fetches that belong to this slot start with it. */
void sp_offload_slot(struct sp_op_ctx *c, int k);

/* The next task of the op begins its k-th slot, and waits for the evictions due by then. */
void sp_offload_gate(struct sp_op_ctx *c, int k);

/* The forward of layer i is submitted: notes the activations that it keeps. */
void sp_offload_keep(struct sp_op_ctx *c, int i);

/* EVICT: evicts as soon as the tasks submitted so far that read the activations have ended. */
void sp_offload_evict(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* FETCH: brings the activations back in a slot of the next op. */
void sp_offload_fetch(struct sp_stage *st, const struct sp_action *a);

/* Allocates the moves of a stage. 0 or -ENOMEM. */
int sp_offload_stage_create(struct sp_graph *g, struct sp_stage *st);
void sp_offload_stage_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
