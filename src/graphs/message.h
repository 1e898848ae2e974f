/* Tensors between stages: the SEND and RECV of lowered programs (policies/lowering/action.h). */
#ifndef SP_MESSAGE_H
#define SP_MESSAGE_H

#include "graphs/graph.h"
#include "policies/lowering/action.h"

/* Sends a tensor of a stage of this process, unless the receiver is here too. */
void sp_message_send(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* Puts a tensor into the store of a stage of this process: as it is, if its sender is here too, otherwise
 * into buffers that it is received in. */
void sp_message_receive(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* ---- for families that post messages by themselves ------------------------------------------ */

/*
 * Sends a tensor of a pool from a stage of this process to one of another, and takes over the
 * caller's hold of it, until the op at position `until` of the order, its receiver, has had its
 * turn.
 */
void sp_message_post(struct sp_graph *g, struct sp_stage *st, starpu_data_handle_t handle, int to,
                     int64_t tag, int until);

/* The same of a handle that no pool has. Whoever writes it next waits until it has gone, so it is one that
 * nobody writes before the step ends, or before its receivers are long submitted. */
void sp_message_post_block(struct sp_graph *g, struct sp_stage *st, starpu_data_handle_t handle,
                           int to, int64_t tag);

/* Submits the receive of a tensor that the op of `lane` reads, and has its arrival recorded. */
void sp_message_expect(struct sp_graph *g, const struct sp_lane *lane, starpu_data_handle_t handle,
                       int from, int64_t tag);

/* Gives back the buffers of what was received by ops before position `now`, on all stages of this
 * process: an op takes buffers of the stages beside its own, too. */
void sp_message_release(struct sp_graph *g, int now);

#endif
