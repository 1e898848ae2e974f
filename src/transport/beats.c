#include "config.h"
#ifdef HAVE_MPI
#include "transport/beats.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { TAG = 0 };

static pthread_mutex_t mpi = PTHREAD_MUTEX_INITIALIZER;

/* A beat's value, in memory that outlives everything: sends may still be under way when all else
 * is freed. */
static const char SAID[] = {0, 1, 2, 3};

static struct {
    bool started;
    bool on, quiet; /* also read without the lock; quiet: this process only listens */
    MPI_Comm comm;
    int rank, size;
    MPI_Request *request; /* [size] the last beat to each process */
} beats;

void sp_mpi_lock(void)
{
    pthread_mutex_lock(&mpi);
}

void sp_mpi_unlock(void)
{
    pthread_mutex_unlock(&mpi);
}

/* Others hold the lock for moments as a rule, but a collective call may hold it for ever. */
static bool try_lock(void)
{
    for (int i = 0; pthread_mutex_trylock(&mpi); i++) {
        if (i == 10)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

void sp_mpi_wait(MPI_Request *request)
{
    long ns = 1000;

    sp_activity_wait(SP_ANY_RANK);
    for (int done = 0; !done; ns = ns < 1000000 ? 2 * ns : ns) {
        sp_mpi_lock();
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        sp_mpi_unlock();
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    }
    sp_activity_waited();
}

int sp_beats_start(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &beats.rank);
    MPI_Comm_size(comm, &beats.size);
    beats.request = malloc((size_t)beats.size * sizeof *beats.request);
    if (!beats.request)
        return sp_error(ENOMEM, "no memory for messages to %d processes", beats.size);
    for (int r = 0; r < beats.size; r++)
        beats.request[r] = MPI_REQUEST_NULL;
    MPI_Comm_dup(comm, &beats.comm);
    beats.started = true;
    __atomic_store_n(&beats.on, beats.size > 1, __ATOMIC_RELEASE);
    return 0;
}

static int hear(void)
{
    int heard = 0, there;
    MPI_Status status;
    char said;

    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG, beats.comm, &there, &status), there) {
        MPI_Recv(&said, 1, MPI_CHAR, status.MPI_SOURCE, TAG, beats.comm, MPI_STATUS_IGNORE);
        heard |= said;
    }
    return heard;
}

/* A process that has not taken the last beat gets no new one: it does not listen. */
static void tell(int say)
{
    for (int r = 0; r < beats.size; r++) {
        int gone;

        if (r == beats.rank)
            continue;
        MPI_Test(&beats.request[r], &gone, MPI_STATUS_IGNORE);
        if (!gone)
            continue;
        MPI_Isend(&SAID[say], 1, MPI_CHAR, r, TAG, beats.comm, &beats.request[r]);
    }
}

bool sp_transport_beat(int say, int *heard)
{
    bool on;

    *heard = 0;
    if (!__atomic_load_n(&beats.on, __ATOMIC_ACQUIRE) || !try_lock())
        return false;
    on = __atomic_load_n(&beats.on, __ATOMIC_ACQUIRE);
    if (on && say && !__atomic_load_n(&beats.quiet, __ATOMIC_ACQUIRE))
        tell(say);
    if (on)
        *heard = hear();
    sp_mpi_unlock();
    return on;
}

void sp_mpi_exchange_beats(void)
{
    MPI_Request here;

    sp_mpi_lock();
    MPI_Ibarrier(beats.comm, &here);
    sp_mpi_unlock();
    sp_mpi_wait(&here);
}

void sp_beats_stop(void)
{
    if (!beats.started)
        return;
    beats.started = false;
    __atomic_store_n(&beats.quiet, true, __ATOMIC_RELEASE);
    sp_mpi_exchange_beats();
    sp_mpi_lock();
    __atomic_store_n(&beats.on, false, __ATOMIC_RELEASE);
    __atomic_store_n(&beats.quiet, false, __ATOMIC_RELEASE);
    hear();
    for (int r = 0; r < beats.size; r++)
        if (beats.request[r] != MPI_REQUEST_NULL)
            MPI_Request_free(&beats.request[r]);
    free(beats.request);
    beats.request = NULL;
    MPI_Comm_free(&beats.comm);
    sp_mpi_unlock();
}
#else
#include "transport/beats.h"

bool sp_transport_beat(int say, int *heard)
{
    (void)say;
    *heard = 0;
    return false;
}
#endif
