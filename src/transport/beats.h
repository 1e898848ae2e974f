/*
 * Processes tell each other that they make progress, in messages of one byte on a communicator of
 * their own. The watchdog sends and takes these beats. A lock keeps its MPI calls apart from those
 * of other threads, as MPI is initialised for one thread at a time.
 */
#ifndef SP_BEATS_H
#define SP_BEATS_H

#include "config.h"
#include <stdbool.h>

enum {
    SP_BEAT_MOVES = 1, /* this process makes progress */
    SP_BEAT_ASKED = 2, /* this process is asked to end: the others report more often */
};

/*
 * Sends `say` to all others (0: nothing) and puts the OR of what they sent since the last call into
 * *heard. Never waits: returns false, with *heard 0, when MPI is busy or this is the only process.
 */
bool sp_transport_beat(int say, int *heard);

#ifdef HAVE_MPI
#include <mpi.h>

void sp_mpi_lock(void);
void sp_mpi_unlock(void);
/* Waits for the request and gives the lock away in between, so that beats go on. */
void sp_mpi_wait(MPI_Request *request);

/* All processes call both; beats flow between the two calls. 0 or -errno. */
int sp_beats_start(MPI_Comm comm);
void sp_beats_stop(void); /* does nothing if beats were not started */
/* A barrier for use while beats flow; they go on during the wait. Needed before calls that wait
 * with the lock. */
void sp_mpi_exchange_beats(void);
#endif

#endif
