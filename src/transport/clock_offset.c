/* As in NTP, the time in a reply is taken to lie halfway between sending the request and
 * receiving the reply. */
#include "config.h"
#ifdef HAVE_MPI
#include "transport/clock_offset.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rank 0 makes at most EXCHANGES exchanges with each rank, and stops after MOST_NS if it has
 * LEAST of them. */
enum { EXCHANGES = 60, LEAST = 5, MOST_NS = 20000000, TAG = 0 };
enum { LAST = 0, AGAIN = 1 };

/* The result, which rank 0 sends to a rank at the end. */
struct verdict {
    struct sp_clock_point point;
    char boot[40]; /* of rank 0's machine */
    int64_t number;
};

int64_t sp_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1000000000 * (int64_t)t.tv_sec + t.tv_nsec;
}

/* Reads an id that differs between machines and between starts of one machine. "": not known. */
static void read_boot(char boot[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (!f || !fgets(boot, 40, f))
        *boot = '\0';
    if (f)
        fclose(f);
}

/* Rank 0 calls this to exchange messages with rank r. */
static struct sp_clock_point ask(MPI_Comm comm, int r)
{
    struct sp_clock_point best = {.round_trip_ns = INT64_MAX};
    int64_t began = sp_clock_ns(), more = AGAIN;

    for (int i = 0; more == AGAIN; i++) {
        int64_t before = sp_clock_ns(), there, after;

        if (i + 1 >= EXCHANGES || (i + 1 >= LEAST && before - began > MOST_NS))
            more = LAST;
        MPI_Send(&more, 1, MPI_INT64_T, r, TAG, comm);
        MPI_Recv(&there, 1, MPI_INT64_T, r, TAG, comm, MPI_STATUS_IGNORE);
        after = sp_clock_ns();
        if (after - before < best.round_trip_ns)
            best = (struct sp_clock_point){.local_ns = there,
                                           .offset_ns = there - (before + (after - before) / 2),
                                           .round_trip_ns = after - before};
    }
    return best;
}

/* Sleeps until rank 0 has sent something. */
static void rest(MPI_Comm comm)
{
    const struct timespec pause = {.tv_nsec = 200000};
    int here = 0;

    while (MPI_Iprobe(0, TAG, comm, &here, MPI_STATUS_IGNORE), !here)
        nanosleep(&pause, NULL);
}

static void reply(MPI_Comm comm)
{
    rest(comm);
    for (int64_t more = AGAIN; more == AGAIN;) {
        int64_t time;

        MPI_Recv(&more, 1, MPI_INT64_T, 0, TAG, comm, MPI_STATUS_IGNORE);
        time = sp_clock_ns();
        MPI_Send(&time, 1, MPI_INT64_T, 0, TAG, comm);
    }
}

static void measure_all(MPI_Comm comm, int size, struct verdict *mine)
{
    struct verdict *all = calloc((size_t)size, sizeof *all);

    if (!all)
        MPI_Abort(comm, 1);
    for (int r = 1; r < size; r++) {
        all[r] = *mine;
        all[r].point = ask(comm, r);
    }
    for (int r = 1; r < size; r++)
        MPI_Send(&all[r], (int)sizeof all[r], MPI_BYTE, r, TAG, comm);
    free(all);
}

void sp_clock_measure(MPI_Comm comm, struct sp_clock_point *point, int64_t *number)
{
    struct verdict v = {.number = *number};
    char boot[40];
    int rank, size;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    read_boot(boot);
    if (rank == 0) {
        v.point.local_ns = sp_clock_ns();
        memcpy(v.boot, boot, sizeof boot);
        measure_all(comm, size, &v);
    } else {
        reply(comm);
        rest(comm);
        MPI_Recv(&v, (int)sizeof v, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE);
        /* One machine has one clock, unless the measurement shows otherwise (as it may in a
         * container). */
        if (*boot && !strcmp(boot, v.boot) && 2 * llabs(v.point.offset_ns) <= v.point.round_trip_ns)
            v.point.offset_ns = v.point.round_trip_ns = 0;
    }
    *point = v.point;
    *number = v.number;
}
#endif
