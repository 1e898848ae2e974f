/*
 * EVICT and FETCH: what leaves memory of a stage and returns, at the moments that offload/eviction.h chose,
 * which lie between the tasks of ops. All of it does nothing in a run without offloading.
 */
#ifndef SP_GRAPH_OFFLOAD_H
#define SP_GRAPH_OFFLOAD_H

#include "graphs/op.h"

/* The next task of the op begins its k-th slot: what was to be fetched then is, from its start on. */
void sp_offload_slot(struct sp_op_ctx *c, int k);

/* The next task of the op begins its k-th slot, and waits until what must have left by then has. */
void sp_offload_gate(struct sp_op_ctx *c, int k);

/* The forward of layer i is submitted: this is what it keeps. */
void sp_offload_keep(struct sp_op_ctx *c, int i);

/* EVICT: it leaves as soon as the tasks have ended that were submitted and read it. */
void sp_offload_evict(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* FETCH: it is brought back with a slot of the next op. */
void sp_offload_fetch(struct sp_stage *st, const struct sp_action *a);

/* Room for what moves on a stage. 0 or -ENOMEM. */
int sp_offload_stage_create(struct sp_graph *g, struct sp_stage *st);
void sp_offload_stage_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
