/*
 * Simulates slow machines on a fast one. With this library preloaded, every op takes SLOW_CORES
 * times its time on a core. Its worker sleeps for the rest, so that as many workers can share a
 * core without noticing each other. Messages and the runtime are as fast as ever.
 *
 * With SLOW_TASK_US every task of an op takes so many microseconds instead, times a factor that SLOW_UNIFORM,
 * SLOW_LOGNORMAL, SLOW_SEED, SLOW_STAGE and SLOW_BY make of the op, as `show --vary` does.
 */
#include "codelets/task/codelet.h"
#include "plan/simulation/variation.h"
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

extern struct starpu_sched_policy sp_order_strict, sp_order_ready;
#pragma weak sp_order_strict
#pragma weak sp_order_ready

static double factor, task_us;
static struct sp_variation variation;
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

/* Seconds that a task takes. */
static double length_s(const struct starpu_task *task)
{
    const struct sp_task_args *args = task->cl_arg;
    int stage;

    if (task_us <= 0)
        return factor * (clock_s(CLOCK_THREAD_CPUTIME_ID) - had_s);
    if (!task->workerorder || !args || args->op_index < 0 ||
        sscanf(args->name, "%*c_s%d", &stage) != 1)
        return 0;
    return 1e-6 * task_us * sp_variation_factor(&variation, stage, args->op_index);
}

static void end(struct starpu_task *task, unsigned context)
{
    double until = began_s + length_s(task);
    struct timespec t = {(time_t)until, (long)(1e9 * (until - (double)(time_t)until))};

    (void)context;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0);
}

static double number(const char *name)
{
    return getenv(name) ? atof(getenv(name)) : 0;
}

__attribute__((constructor)) static void slow_down(void)
{
    factor = number("SLOW_CORES");
    task_us = number("SLOW_TASK_US");
    if ((factor <= 1 && task_us <= 0) || !&sp_order_strict)
        return;
    variation = (struct sp_variation){.uniform = number("SLOW_UNIFORM"),
                                      .lognormal = number("SLOW_LOGNORMAL"),
                                      .seed = (uint64_t)number("SLOW_SEED"),
                                      .slow_stage = (int)number("SLOW_STAGE"),
                                      .stage_by = number("SLOW_BY")};
    sp_order_strict.pre_exec_hook = sp_order_ready.pre_exec_hook = begin;
    sp_order_strict.post_exec_hook = sp_order_ready.post_exec_hook = end;
}
