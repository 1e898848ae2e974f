/*
 * Processes tell each other that they move, by messages of one byte on a communicator of their own, which the
 * watchdog sends and takes; and the lock that keeps its calls of MPI and those of others apart, as MPI is
 * initialised for one at a time.
 */
#ifndef SP_BEATS_H
#define SP_BEATS_H

#include "config.h"
#include <stdbool.h>

enum {
    SP_BEAT_MOVES = 1, /* something moves here */
    SP_BEAT_ASKED = 2, /* an end is asked for here: others tell of themselves more often */
};

/*
 * Tells all others `say` (0: nothing), and what they have said since the last call: *heard. Never waits: false,
 * and *heard 0, where MPI is busy, or this is the only process.
 */
bool sp_transport_beat(int say, int *heard);

#ifdef HAVE_MPI
#include <mpi.h>

void sp_mpi_lock(void);
void sp_mpi_unlock(void);
/* Waits for it, beats in between. */
void sp_mpi_wait(MPI_Request *request);

/* By all processes: beats go from the one to the other. 0 or -errno. */
int sp_beats_start(MPI_Comm comm);
void sp_beats_stop(void); /* nothing where they were not started */
/* Between the two: none goes on before all are here. Before calls that wait with the lock. */
void sp_mpi_exchange_beats(void);
#endif

#endif
