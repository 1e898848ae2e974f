/*
 * StarPU-MPI's progress thread polls with MPI_Test while any message is pending, and takes half a
 * core from a worker that shares it. Through MPI's profiling interface this MPI_Test sleeps a
 * little after an unsuccessful test. 20 us: longer costs more in latency than it saves.
 */
#include "config.h"
#ifdef HAVE_MPI
#include "transport/poll.h"
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* SP_POLL_US: microseconds of sleep, 0 for none (a machine with a core to spare). */
long sp_poll_pause_ns(void)
{
    static long ns = -1;

    if (ns < 0) {
        const char *us = getenv("SP_POLL_US");

        ns = 1000 * (us ? atol(us) : 20);
        ns = ns < 0 ? 0 : ns > 999999 ? 999999 : ns;
    }
    return ns;
}

static clockid_t polling; /* CPU clock of the thread that calls MPI_Test */
static int known;         /* 1: polling is set */

double sp_poll_cpu_us(void)
{
    struct timespec t;

    if (!__atomic_load_n(&known, __ATOMIC_ACQUIRE) || clock_gettime(polling, &t))
        return 0;
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

void sp_poll_forget(void)
{
    __atomic_store_n(&known, 0, __ATOMIC_RELEASE);
}

/* Exported, so that StarPU-MPI calls it in a shared library as well. */
__attribute__((visibility("default"))) int MPI_Test(MPI_Request *request, int *flag,
                                                    MPI_Status *status)
{
    int err = PMPI_Test(request, flag, status);

    if (!__atomic_load_n(&known, __ATOMIC_RELAXED) &&
        !pthread_getcpuclockid(pthread_self(), &polling))
        __atomic_store_n(&known, 1, __ATOMIC_RELEASE);
    if (err == MPI_SUCCESS && !*flag && sp_poll_pause_ns())
        nanosleep(&(struct timespec){.tv_nsec = sp_poll_pause_ns()}, NULL);
    return err;
}
#endif
