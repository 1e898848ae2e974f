/*
 * Moving tensors between processes. Messages are derived by the graph from producers and
 * consumers; inside one process the consumer uses the producer's tensor and nothing moves.
 * Sends and receives are submitted in graph order and never block the caller or a worker.
 */
#ifndef SP_POST_H
#define SP_POST_H

#include "transport/transport.h"
#include <starpu.h>

/* Submits the sending of a handle's value after the tasks that write it. `name`: of the tensor, for a
 * trace of the run, which is made where sp_transport_records (message_log.h); "": none. `times`, if not
 * NULL, is filled in by the thread for messages; it lives until the message has gone. */
void sp_transport_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                       struct sp_transfer *times);
/* Submits a receive; tasks submitted later that read the handle wait for it. `times` likewise. `arrived`,
 * if not NULL, is called with `arg` when it is there, by the thread for messages. */
void sp_transport_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                       void (*arrived)(void *arg), void *arg);

/* The same, and waits; for set-up, reports and checkpoints. */
void sp_transport_send_wait(starpu_data_handle_t handle, int dst, int64_t tag);
void sp_transport_recv_wait(starpu_data_handle_t handle, int src, int64_t tag);

#endif
