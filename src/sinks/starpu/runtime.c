#include "sinks/starpu/runtime.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "transport/starpu_environment.h"
#include "transport/transport.h"
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)SP_MAIN_MEMORY == (int)STARPU_MAIN_RAM, "main memory is StarPU's first node");

static void choose_workers(const struct sp_placement *pl, struct starpu_conf *conf)
{
    conf->precedence_over_environment_variables = 1;
    conf->ncpus = pl->gpus ? 0 : pl->workers;
    conf->ncuda = pl->gpus;
    conf->nopencl = 0;
    conf->nhip = 0;
    conf->use_explicit_workers_cuda_gpuid = pl->gpus > 0;
    for (int i = 0; i < pl->gpus; i++)
        conf->workers_cuda_gpuid[i] = (unsigned)pl->gpu[i];
}

static int check_workers(const struct sp_placement *pl)
{
    unsigned workers = pl->gpus ? starpu_cuda_worker_get_count() : starpu_cpu_worker_get_count();

    if ((int)workers >= pl->workers)
        return 0;
    return sp_error(ENODEV, "StarPU started %u %s workers, %d are needed", workers,
                    pl->gpus ? "CUDA" : "CPU", pl->workers);
}

int sp_runtime_start(const struct sp_runtime *r, bool *started)
{
    struct starpu_conf conf;
    int err = sp_starpu_environment_set(&conf, r->host_limit);

    *started = false;
    if (err)
        return err;
    choose_workers(r->place, &conf);
    conf.sched_policy = r->ready ? &sp_order_ready : &sp_order_strict;
    conf.catch_signals = 0; /* the program handles them */
    err = r->prepare ? r->prepare(r->arg) : 0;
    if (err)
        return err;
    err = sp_transport_start(&conf);
    if (err) {
        if (r->undo)
            r->undo(r->arg);
        return err;
    }
    *started = true;
    return check_workers(r->place);
}

void sp_runtime_version(char text[32])
{
    int major, minor, release;

    starpu_get_version(&major, &minor, &release);
    snprintf(text, 32, "%d.%d.%d", major, minor, release);
}

unsigned sp_runtime_node(void)
{
    return starpu_worker_get_memory_node(0);
}

int64_t sp_runtime_room(unsigned node)
{
    return (int64_t)starpu_memory_get_total(node);
}

int sp_runtime_look(struct sp_runtime_workers *w)
{
    struct starpu_conf conf;
    int err;

    *w = (struct sp_runtime_workers){.cpus = -1, .gpus = -1};
    setenv("STARPU_FXT_TRACE", "0", 1); /* nothing to trace */
    err = sp_starpu_environment_set(&conf, false);
    if (err)
        return err;
    err = starpu_init(&conf);
    sp_starpu_environment_started();
    if (!err) {
        w->cpus = (int)starpu_cpu_worker_get_count();
        w->gpus = (int)starpu_cuda_worker_get_count();
        w->n = (int)starpu_worker_get_count();
        w->name = calloc((size_t)w->n, sizeof *w->name);
        for (int i = 0; w->name && i < w->n; i++)
            starpu_worker_get_name(i, w->name[i], sizeof w->name[i]);
        starpu_shutdown();
    }
    sp_starpu_environment_restore();
    return err ? err : w->n && !w->name ? -ENOMEM : 0;
}
