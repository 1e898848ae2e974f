/* How far the clocks of processes are apart, by messages that go to and fro. */
#ifndef SP_CLOCK_OFFSET_H
#define SP_CLOCK_OFFSET_H

#include <mpi.h>
#include <stdint.h>

/* At one moment of a run. */
struct sp_clock_point {
    int64_t local_ns;  /* of this process's CLOCK_MONOTONIC */
    int64_t offset_ns; /* this clock less rank 0's */
    int64_t
        round_trip_ns; /* of the exchange it was read in: the offset is known to half of it; 0: it is
                            * rank 0's clock, as both are of one machine */
};

/* CLOCK_MONOTONIC. */
int64_t sp_clock_ns(void);

/*
 * Called by all ranks, while no other thread calls MPI. Rank 0 exchanges messages with every other rank in turn;
 * of many exchanges the fastest counts. Ranks that wait rest, so that on a crowded machine those that do not
 * have a core. *number: rank 0's, afterwards everyone's.
 */
void sp_clock_measure(MPI_Comm comm, struct sp_clock_point *point, int64_t *number);

#endif
