/*
 * Moves tensors between processes. The graph derives the messages from producers and consumers;
 * inside one process the consumer uses the producer's tensor and nothing moves.
 * Sends and receives are submitted in graph order and never block the caller or a worker.
 */
#ifndef SP_POST_H
#define SP_POST_H

#include "transport/transport.h"
#include <starpu.h>

/* Submits the sending of a handle's value after the tasks that write it. `name`: the tensor's
 * name for a trace of the run, which is made if sp_transport_records (messages.h); "": none.
 * The thread for messages fills in `times`, if not NULL, which must live until the message has
 * gone. */
void sp_transport_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                       struct sp_transfer *times);
/* Submits a receive; tasks submitted later that read the handle wait for it. `times`: as for a
 * send. The thread for messages calls `arrived`, if not NULL, with `arg` when the value is
 * there. */
void sp_transport_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                       void (*arrived)(void *arg), void *arg);

/* Like the above, and wait for the message; for set-up, reports and checkpoints. */
void sp_transport_send_wait(starpu_data_handle_t handle, int dst, int64_t tag);
void sp_transport_recv_wait(starpu_data_handle_t handle, int src, int64_t tag);

#endif
