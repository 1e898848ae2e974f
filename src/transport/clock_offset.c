/* As NTP does it: a reply that says when it left lies halfway between request and arrival. */
#include "config.h"
#ifdef HAVE_MPI
#include "transport/clock_offset.h"
#include <time.h>

enum { EXCHANGES = 40, TAG = 0 };

int64_t sp_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1000000000 * (int64_t)t.tv_sec + t.tv_nsec;
}

/* Of rank 0, with rank r. */
static struct sp_clock_point ask(MPI_Comm comm, int r)
{
    struct sp_clock_point best = {.round_trip_ns = INT64_MAX};

    for (int i = 0; i < EXCHANGES; i++) {
        int64_t before = sp_clock_ns(), there, after;

        MPI_Send(&before, 1, MPI_INT64_T, r, TAG, comm);
        MPI_Recv(&there, 1, MPI_INT64_T, r, TAG, comm, MPI_STATUS_IGNORE);
        after = sp_clock_ns();
        if (after - before < best.round_trip_ns)
            best = (struct sp_clock_point){.local_ns = there,
                                           .offset_ns = there - (before + (after - before) / 2),
                                           .round_trip_ns = after - before};
    }
    return best;
}

static void reply(MPI_Comm comm)
{
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t time;

        MPI_Recv(&time, 1, MPI_INT64_T, 0, TAG, comm, MPI_STATUS_IGNORE);
        time = sp_clock_ns();
        MPI_Send(&time, 1, MPI_INT64_T, 0, TAG, comm);
    }
}

void sp_clock_measure(MPI_Comm comm, struct sp_clock_point *point)
{
    int rank, size;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (rank == 0) {
        *point = (struct sp_clock_point){.local_ns = sp_clock_ns()};
        for (int r = 1; r < size; r++) {
            struct sp_clock_point p = ask(comm, r);

            MPI_Send(&p, (int)sizeof p, MPI_BYTE, r, TAG, comm);
        }
    } else {
        reply(comm);
        MPI_Recv(point, (int)sizeof *point, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE);
    }
}
#endif
