/*
 * What a run that StarPU traces with FxT (STARPU_FXT_TRACE=1) records besides, in memory: its messages, which
 * are not StarPU-MPI's, and how far the clocks of the processes are apart. It is written at the end into
 * messages_RANK.jsonl, beside StarPU's prof_file_USER_RANK; `starpipe trace fxt` reads both.
 *
 * The first line is {"rank", "ranks", "run", "start": {"local_ns", "offset_ns", "round_trip_ns"}, "end": {...}}
 * (clock_offset.h); "run" is one number for all ranks of a run. Each further line is a message:
 * {"to" or "from", "tag", "bytes", "tensor", "handle", "start_ns", "end_ns"}, from MPI_Isend or MPI_Irecv until
 * MPI was found to be done, in CLOCK_MONOTONIC. That StarPU's trace can be brought to the same clock, both
 * ends of it have events "starpipe clock start NS" and "... end NS" with that clock's time just before.
 */
#ifndef SP_MESSAGE_LOG_H
#define SP_MESSAGE_LOG_H

#include <mpi.h>
#include <starpu.h>
#include <stdbool.h>
#include <stdint.h>

struct sp_logged_message;

/* By all ranks: between StarPU's start and that of messages, and between the last message and StarPU's end. */
void sp_message_log_start(MPI_Comm comm);
void sp_message_log_stop(MPI_Comm comm);

/* Whether this run is recorded. */
bool sp_message_log_on(void);

/* A message that was submitted. NULL: nothing is recorded. Belongs to the log. */
struct sp_logged_message *sp_message_log_new(starpu_data_handle_t handle, bool sends, int peer,
                                             int64_t tag, const char *tensor);
/* MPI was given it; MPI is done. NULL: nothing happens. */
void sp_message_log_begins(struct sp_logged_message *record);
void sp_message_log_ends(struct sp_logged_message *record);

#endif
