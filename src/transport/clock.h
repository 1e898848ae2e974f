/* The time of a clock. */
#ifndef SP_CLOCK_H
#define SP_CLOCK_H

#include <time.h>

/* Microseconds of CLOCK_MONOTONIC, of CLOCK_REALTIME, which processes on other machines can compare
 * with their own, or of a thread's CPU clock. */
static inline double sp_clock_us(clockid_t clock)
{
    struct timespec t = {0};

    clock_gettime(clock, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

#endif
