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

/*
 * Message k of an action, to a stage of another process: of a buffer that nobody writes before it has gone,
 * or who does waits. And its receive, which the op of `ctx` waits for. Both are recorded with the stage.
 */
void sp_message_post(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a, int k,
                     struct sp_tensor *handle, int to);
void sp_message_expect(struct sp_graph *g, const struct sp_task_context *ctx,
                       const struct sp_action *a, int k, struct sp_tensor *handle, int from);

/* A message to the same stage of another pipeline, counted with this one; and one from there. */
void sp_message_share(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *t,
                      struct sp_tensor *handle, int pipeline, int64_t tag);
void sp_message_take(const struct sp_graph *g, const struct sp_stage *st, struct sp_tensor *handle,
                     int pipeline, int64_t tag);

/*
 * Room for the records of a step: counts g->records from the actions, the same on all processes. 0 or
 * -ENOMEM. Again after the order was changed.
 */
int sp_message_logs_create(struct sp_graph *g);
void sp_message_logs_destroy(struct sp_graph *g);

#endif
