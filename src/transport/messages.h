/*
 * Messages between processes over MPI: handles of StarPU, each as one message from the sender's main
 * memory to the receiver's. Submitted in any order on both sides, matched by tag; completion is found by a
 * thread of the transport, the only one that calls MPI meanwhile, which sleeps while nothing is on its way.
 *
 * Nothing is buffered, beyond what MPI does by itself for small messages: a value stays in its handle until
 * its receiver has the buffer for it, as with NCCL (nccl/nccl.h).
 */
#ifndef SP_MESSAGES_H
#define SP_MESSAGES_H

#include "transport/transport.h"
#include <mpi.h>
#include <starpu.h>
#include <stdbool.h>
#include <stdint.h>

/* On a communicator of the transport's own; called by all, after StarPU was started. 0 or -errno after one
 * line. sp_messages_stop: by all, after sp_messages_wait_all. */
int sp_messages_start(MPI_Comm comm);
void sp_messages_stop(void);

/* As sp_transport_send and sp_transport_recv; `done`, if not NULL, is called by the thread with `arg`. */
void sp_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                      struct sp_transfer *times, void (*done)(void *arg), void *arg);
void sp_messages_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                      void (*done)(void *arg), void *arg);

/* The same, and wait. */
void sp_messages_send_wait(starpu_data_handle_t handle, int dst, int64_t tag);
void sp_messages_recv_wait(starpu_data_handle_t handle, int src, int64_t tag);

/* As sp_transport_crowded. */
void sp_messages_crowded(bool crowded);

/* Until every submitted message went; those of tasks that were submitted too. */
void sp_messages_wait_all(void);

/* CPU time that the thread has taken so far, in microseconds. */
double sp_messages_polling_us(void);

#endif
