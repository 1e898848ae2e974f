/* Shared by the tests of the engine: starts StarPU on CPU workers, makes distinct numbers, catches
 * stderr. */
#ifndef SP_TESTS_ENGINE_H
#define SP_TESTS_ENGINE_H

#include "draw.h"
#include "policies/common.h"
#include "starpipe/order.h"
#include <starpu.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { REST_NS = 5000 };

/* Starts StarPU with `workers` CPU workers under `policy`, whatever the environment says. */
static inline void start_starpu(int workers, struct starpu_sched_policy *policy)
{
    struct starpu_conf conf;

    setenv("STARPU_SILENT", "1", 0);
    setenv("STARPU_WORKERS_NOBIND", "1", 0);
    setenv("SP_CHECK", "1", 0); /* checks for bad numbers and for reads of dead activations */
    starpu_conf_init(&conf);
    conf.precedence_over_environment_variables = 1;
    conf.ncpus = workers;
    conf.ncuda = conf.nopencl = conf.nhip = 0;
    conf.sched_policy = policy;
    sp_order_rest(REST_NS); /* tests share the cores: idle workers must not poll them away */
    assert_int_equal(starpu_init(&conf), 0);
    assert_int_equal(starpu_cpu_worker_get_count(), workers);
    assert_string_equal(starpu_sched_get_sched_policy()->policy_name, policy->policy_name);
}

/*
 * Runs `fn` in a child that starts its own StarPU, and returns how it ended (wait status) with the
 * first 2 KiB of its stderr. A child that hangs is killed after 20 s.
 */
static inline int in_child(void (*fn)(void *), void *arg, struct capture *said)
{
    int status = 0;
    pid_t pid;

    capture_begin(said);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        fn(arg);
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    capture_end(said);
    return status;
}

#endif
