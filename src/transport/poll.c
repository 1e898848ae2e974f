#include "transport/poll.h"
#include "transport/clock.h"
#include <stdlib.h>

enum {
    AWAITED_NS = 5000, /* Linux adds some 50 us */
    SPARE_NS = 20000,
    LEAST_NS = 50000, /* for a thread that shares its core */
    MOST_NS = 1000000,
};
static const double SPIN_US = 50; /* so long it polls without a rest while a worker waits */

static const double PIECE_US = 2.5; /* less than a piece takes where copies are fastest */
static const double COLD_US = 200;  /* a rest that leaves nothing in the caches */

bool sp_poll_moved(double took_us, double rested_us, double *quiet_us)
{
    double least = PIECE_US;

    if (rested_us < COLD_US)
        return took_us > least;
    if (*quiet_us <= 0 || took_us < *quiet_us)
        *quiet_us = *quiet_us <= 0 ? took_us : *quiet_us - (*quiet_us - took_us) / 4;
    else
        *quiet_us *= 1.005;
    least = 2 * *quiet_us > least ? 2 * *quiet_us : least;
    return took_us > least;
}

long sp_poll_given_ns(void)
{
    const char *us = getenv("SP_POLL_US");
    long given = us ? atol(us) : -1;

    return given < 0 ? -1 : given > 999999 ? 999999000 : 1000 * given;
}

long sp_poll_pause_ns(void)
{
    long given = sp_poll_given_ns();

    return given < 0 ? SPARE_NS : given;
}

long sp_poll_rest_ns(double since_us, bool awaited, bool crowded)
{
    double grown = 1e3 * since_us;

    if (awaited)
        return since_us < SPIN_US ? 0 : AWAITED_NS;
    if (!crowded)
        return SPARE_NS;
    return grown < LEAST_NS ? LEAST_NS : grown > MOST_NS ? MOST_NS : (long)grown;
}

void sp_poll_wait(pthread_cond_t *wake, pthread_mutex_t *mutex, long ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
    pthread_cond_timedwait(wake, mutex, &until);
}

double sp_poll_cpu_us(pthread_t thread)
{
    clockid_t clock;

    return pthread_getcpuclockid(thread, &clock) ? 0 : sp_clock_us(clock);
}
