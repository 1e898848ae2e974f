/*
 * Records, in memory, the messages of a run that StarPU traces with FxT (STARPU_FXT_TRACE=1) and
 * how far the clocks of its processes are apart; the messages do not go through StarPU-MPI, which
 * would trace them. At the end each rank writes messages_RANK.jsonl next to StarPU's
 * prof_file_USER_RANK; `starpipe trace fxt` reads both.
 *
 * The first line is {"rank", "ranks", "run", "start": {"local_ns", "offset_ns", "round_trip_ns"},
 * "end": {...}} (clock_offset.h); "run" is one number for all ranks of a run. Each further line is
 * a message: {"to" or "from", "tag", "bytes", "tensor", "handle", "start_ns", "end_ns"}. Its times,
 * in CLOCK_MONOTONIC, run from MPI_Isend or MPI_Irecv until MPI was found to be done. StarPU's
 * trace has events "starpipe clock start NS" and "... end NS" at its two ends; NS is the
 * CLOCK_MONOTONIC time just before, which brings the trace to the same clock.
 */
#ifndef SP_MESSAGE_LOG_H
#define SP_MESSAGE_LOG_H

#include <mpi.h>
#include <starpu.h>
#include <stdbool.h>
#include <stdint.h>

struct sp_logged_message;

/* All ranks call these: between the starts of StarPU and of messages; between the last message
 * and StarPU's end. */
void sp_message_log_start(MPI_Comm comm);
void sp_message_log_stop(MPI_Comm comm);

/* True if this run is recorded. */
bool sp_message_log_on(void);

/* Adds a submitted message to the log, which owns the record. NULL: nothing is recorded. */
struct sp_logged_message *sp_message_log_new(starpu_data_handle_t handle, bool sends, int peer,
                                             int64_t tag, const char *tensor);
/* Call these when MPI is given the message, and when MPI is done with it. Both ignore a NULL
 * record. */
void sp_message_log_begins(struct sp_logged_message *record);
void sp_message_log_ends(struct sp_logged_message *record);

#endif
