/* Tensors between stages: the SEND and RECV of lowered programs (policies/lowering/action.h). */
#ifndef SP_MESSAGE_H
#define SP_MESSAGE_H

#include "graphs/graph.h"
#include "policies/lowering/action.h"

/* Sends a tensor of a stage of this process, unless the receiver is here too. */
void sp_message_send(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/* Puts a tensor into the store of a stage of this process: itself if its sender is here too,
 * otherwise buffers that receive it. */
void sp_message_receive(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

/*
 * post sends message k of an action to a stage of another process; a task that writes the buffer
 * waits until the message has been sent. expect receives it, and the op of `ctx` waits for that.
 * Both record the message with the stage.
 */
void sp_message_post(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a, int k,
                     struct sp_tensor *handle, int to);
void sp_message_expect(struct sp_graph *g, const struct sp_task_context *ctx,
                       const struct sp_action *a, int k, struct sp_tensor *handle, int from);

/* Send a message to the same stage of another pipeline, counted with this stage, and receive
 * one. */
void sp_message_share(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *t,
                      struct sp_tensor *handle, int pipeline, int64_t tag);
void sp_message_take(const struct sp_graph *g, const struct sp_stage *st, struct sp_tensor *handle,
                     int pipeline, int64_t tag);

/*
 * Allocates the records of a step: counts g->records from the actions, the same on all processes.
 * To be called again after a change of the order. 0 or -ENOMEM.
 */
int sp_message_logs_create(struct sp_graph *g);
void sp_message_logs_destroy(struct sp_graph *g);

#endif
