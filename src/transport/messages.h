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

/* Like sp_transport_send and sp_transport_recv. */
void sp_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                      struct sp_transfer *times);
void sp_messages_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                      void (*arrived)(void *arg), void *arg);

/* Waits until every submitted message is done, including those that still wait for submitted
 * tasks. */
void sp_messages_wait_all(void);

/* CPU time that the thread has taken so far, in microseconds. */
double sp_messages_polling_us(void);

/* ---- their log ---------------------------------------------------------------------------------- */

/*
 * Records, in memory, the messages of a run that StarPU traces with FxT (STARPU_FXT_TRACE=1) and
 * how far the clocks of its processes are apart. StarPU itself traces only messages through
 * StarPU-MPI, on less precise clocks. At the end each rank writes messages_RANK.jsonl next to
 * StarPU's prof_file_USER_RANK; `starpipe trace fxt` reads both.
 *
 * The first line is {"rank", "ranks", "run", "start": {"local_ns", "offset_ns", "round_trip_ns"},
 * "end": {...}} (message_log.c says what a point is); "run" is one number for all ranks of a run.
 * Each further line is a message: {"to" or "from", "tag", "bytes", "tensor", "handle", "start_ns", "end_ns"}. Its times,
 * in CLOCK_MONOTONIC, run from MPI_Isend or MPI_Irecv until MPI was found to be done. StarPU's
 * trace has events "starpipe clock start NS" and "... end NS" at its two ends; NS is the
 * CLOCK_MONOTONIC time just before, which brings the trace to the same clock.
 */
struct sp_logged_message;

/* All ranks call these: between the starts of StarPU and of messages; between the last message
 * and StarPU's end. */
void sp_message_log_start(MPI_Comm comm);
void sp_message_log_stop(MPI_Comm comm);

/* Adds a submitted message to the log, which owns the record. NULL: nothing is recorded. */
struct sp_logged_message *sp_message_log_new(starpu_data_handle_t handle, bool sends, int peer,
                                             int64_t tag, const char *tensor);
/* Call these when MPI is given the message, and when MPI is done with it. Both ignore a NULL
 * record. */
void sp_message_log_begins(struct sp_logged_message *record);
void sp_message_log_ends(struct sp_logged_message *record);

#endif
