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

/*
 * Activations parked on another stage (policies/lowering/parking.h). A run that frees what leaves
 * keeps to the plan of plan/offload/peers.c: memory for what arrives is taken at its place in the
 * order of the stage's tasks, and what was sent has left when one more op has ended. Both wait in
 * the worker's order. These functions do nothing for other tensors and in other runs.
 */

/* The stage runs its next op: whatever was sent before the last one has left. */
void sp_parked_run(struct sp_graph *g, struct sp_stage *st);

/* RECV: n tensors are going to be received. */
void sp_parked_arrives(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a, int n,
                       struct sp_tensor *const *piece);

/* FREE: a tensor that was sent is dropped. */
void sp_parked_departs(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* The step ends. */
void sp_parked_end(struct sp_stage *st);

/*
 * The optimizer's state with --offload-optimizer (ZeRO-Offload: Ren et al. 2021, "ZeRO-Offload:
 * Democratizing Billion-Scale Model Training"): moments, and the f32 weights of a run in bf16, are on
 * the tier except around their update. Blocks follow each other:
 *
 *   come     the next task fetches the state of block i, while block i - 1 is updated
 *   wait     the next task, the update of block i, waits until block i - 2 has left
 *   leave    after the update of block i
 *   put_back block i's `state`, of which a checkpoint was read or written, leaves now; waits for that
 *
 * If cores update beside GPUs, the state never leaves their memory. Then the gradient of block i
 * comes to them, and its weights leave for the GPU. The kernels of both may round differently:
 * tests/gpu hold a GPU's to 1e-5 of the largest element.
 */
void sp_states_come(struct sp_stage *st, int i);
void sp_states_wait(struct sp_graph *g, const struct sp_task_context *ctx, struct sp_stage *st,
                    int i);
void sp_states_leave(struct sp_graph *g, struct sp_stage *st, int i);
void sp_states_put_back(struct sp_graph *g, struct sp_stage *st, int i, enum sp_state state);
/* Bytes of gradients that went to cores since the last call. */
int64_t sp_states_sent(struct sp_stage *st);
int sp_states_create(struct sp_graph *g, struct sp_stage *st);
void sp_states_destroy(struct sp_graph *g, struct sp_stage *st);

/* Allocates the moves of a stage. 0 or -ENOMEM. */
int sp_offload_stage_create(struct sp_graph *g, struct sp_stage *st);
void sp_offload_stage_destroy(struct sp_graph *g, struct sp_stage *st);

#endif
