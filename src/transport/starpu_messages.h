/*
 * Messages of the graph through StarPU-MPI, for its NewMadeleine backend or its own traces of
 * messages: `--transport starpu`. Tags are those of messages over MPI. StarPU-MPI's thread makes
 * progress; it polls as long as a message is expected, so a worker on its core is slower.
 *
 * A message that comes before its receive is posted waits in a buffer of StarPU-MPI's, which no
 * plan of the memory contains. A process that waits for a message takes in all that come, so no
 * order of messages stops another, as long as sends are not limited in number.
 */
#ifndef SP_STARPU_MESSAGES_H
#define SP_STARPU_MESSAGES_H

#include "transport/transport.h"
#include <mpi.h>
#include <starpu.h>

/* Call it before StarPU-MPI starts. 0 or -ENOMEM after one line. */
int sp_starpu_messages_prepare(void);
/* All processes call these: start, on a communicator of the transport's own, after StarPU-MPI was
 * started; stop, after sp_starpu_messages_wait_all and StarPU-MPI's end. */
void sp_starpu_messages_start(MPI_Comm comm);
void sp_starpu_messages_stop(void);

/* Like sp_transport_send and sp_transport_recv. A message counts as begun when its value is
 * there or its buffer is free: StarPU-MPI does not tell when it gives it to the network. */
void sp_starpu_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                             struct sp_transfer *times);
void sp_starpu_messages_recv(starpu_data_handle_t handle, int src, int64_t tag,
                             struct sp_transfer *times, void (*arrived)(void *arg), void *arg);

/* Waits until every submitted message is done. */
void sp_starpu_messages_wait_all(void);

/* CPU time that StarPU-MPI's thread has taken so far, in microseconds; 0 before the first send is
 * done. */
double sp_starpu_messages_polling_us(void);

#endif
