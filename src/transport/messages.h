/*
 * Messages between processes over MPI: each carries a StarPU handle from the sender's main memory
 * to the receiver's. Both sides may submit in any order; tags match the two ends. A thread of the
 * transport finds out what has completed; meanwhile no other thread calls MPI. It sleeps while no
 * message is under way.
 *
 * Nothing is buffered, beyond what MPI does by itself for small messages: a value stays in its
 * handle until its receiver has the buffer for it, as with NCCL (nccl/nccl.h).
 */
#ifndef SP_MESSAGES_H
#define SP_MESSAGES_H

#include "transport/transport.h"
#include <mpi.h>
#include <starpu.h>
#include <stdbool.h>
#include <stdint.h>

/* All processes call these: start, on a communicator of the transport's own, after StarPU was
 * started (0, or -errno after one line); stop, after sp_messages_wait_all. */
int sp_messages_start(MPI_Comm comm);
void sp_messages_stop(void);

/* Like sp_transport_send and sp_transport_recv. The thread calls `done`, if not NULL, with
 * `arg`. */
void sp_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                      struct sp_transfer *times, void (*done)(void *arg), void *arg);
void sp_messages_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                      void (*done)(void *arg), void *arg);

/* Like the above, and wait for the message. */
void sp_messages_send_wait(starpu_data_handle_t handle, int dst, int64_t tag);
void sp_messages_recv_wait(starpu_data_handle_t handle, int src, int64_t tag);

/* Like sp_transport_crowded. */
void sp_messages_crowded(bool crowded);

/* Waits until every submitted message is done, including those that still wait for submitted
 * tasks. */
void sp_messages_wait_all(void);

/* CPU time that the thread has taken so far, in microseconds. */
double sp_messages_polling_us(void);

#endif
