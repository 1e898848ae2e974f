#include "transport/poll.h"
#include <stdlib.h>

enum {
    AWAITED_NS = 5000, /* Linux adds some 50 us */
    SPARE_NS = 20000,
    LEAST_NS = 50000, /* of a thread that shares its core */
    MOST_NS = 1000000,
};
static const double SPIN_US = 50; /* of polls without a rest while a worker waits */

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
