/* Measures how far the clocks of processes are apart, by messages that go to and fro. */
#ifndef SP_CLOCK_OFFSET_H
#define SP_CLOCK_OFFSET_H

#include <mpi.h>
#include <stdint.h>

/* The clocks at one moment of a run. */
struct sp_clock_point {
    int64_t local_ns;  /* this process's CLOCK_MONOTONIC */
    int64_t offset_ns; /* this clock less rank 0's */
    int64_t
        round_trip_ns; /* time of the exchange that gave the offset, whose error is at most half of
                        * it; 0: both processes read the clock of one machine */
};

/* CLOCK_MONOTONIC. */
int64_t sp_clock_ns(void);

/*
 * All ranks call this while no other thread calls MPI. Rank 0 exchanges messages with every other
 * rank in turn and takes the fastest of many exchanges. Waiting ranks sleep, so that on a crowded
 * machine they leave the cores to those that measure. *number: rank 0's on entry, the same on every
 * rank afterwards.
 */
void sp_clock_measure(MPI_Comm comm, struct sp_clock_point *point, int64_t *number);

#endif
