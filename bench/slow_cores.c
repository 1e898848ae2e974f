/*
 * Slow machines on a fast one: preloaded, every op takes SLOW_CORES times the time that it has had of a core. The
 * rest of that time its worker sleeps, so that as many workers can share a core without one noticing the others.
 * What is not an op, as messages and the runtime, is as fast as ever.
 */
#include <starpu.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

extern struct starpu_sched_policy sp_order_strict, sp_order_ready;
#pragma weak sp_order_strict
#pragma weak sp_order_ready

static double factor;
static __thread double began_s, had_s;

static double clock_s(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(struct starpu_task *task, unsigned context)
{
    (void)task, (void)context;
    began_s = clock_s(CLOCK_MONOTONIC);
    had_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
}

static void end(struct starpu_task *task, unsigned context)
{
    double until = began_s + factor * (clock_s(CLOCK_THREAD_CPUTIME_ID) - had_s);
    struct timespec t = {(time_t)until, (long)(1e9 * (until - (double)(time_t)until))};

    (void)task, (void)context;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0);
}

__attribute__((constructor)) static void slow_down(void)
{
    factor = getenv("SLOW_CORES") ? atof(getenv("SLOW_CORES")) : 0;
    if (factor <= 1 || !&sp_order_strict)
        return;
    sp_order_strict.pre_exec_hook = sp_order_ready.pre_exec_hook = begin;
    sp_order_strict.post_exec_hook = sp_order_ready.post_exec_hook = end;
}
