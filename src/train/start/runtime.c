/* StarPU begins, with the workers of the placement and the memory that the run leaves to it, and ends. */
#include "train/start/phases.h"
#include "offload/host.h"
#include "offload/main_memory.h"
#include "plan/offload/pages.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/cuda_memory.h"
#include "sinks/starpu/runtime.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include "train/start/device.h"
#include "transport/starpu_environment.h"
#include "transport/transport.h"
#include <stdlib.h>

/* Prepares GPUs, and sets how StarPU gets main memory, before it takes its own. */
static int prepare_devices(void *arg)
{
    static const struct sp_host_pins pins = {sp_cuda_pin, sp_cuda_unpin};
    struct sp_trainer *t = arg;
    int err = t->place.gpus ? sp_train_prepare_gpus(t) : 0;

    if (err)
        return err;
    if (sp_train_evicts(t)) {
        /* a prefetch for any ready task would fetch what was just evicted */
        err = sp_starpu_environment_change("STARPU_PREFETCH", "0");
        if (err)
            return err;
        sp_host_start(t->place.gpus ? SIZE_MAX : (size_t)sp_offload_idle_bytes(&t->plan, &t->shape),
                      t->place.gpus ? &pins : NULL);
    } else if (!t->place.gpus) {
        sp_main_memory_start();
    }
    return 0;
}

static void stop_memory(void *arg)
{
    const struct sp_trainer *t = arg;

    if (sp_train_evicts(t))
        sp_host_stop();
    else if (!t->place.gpus)
        sp_main_memory_stop();
}

/* The ops of a step, on all stages. */
static int ops_of(const struct sp_plan *plan)
{
    int n = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        n += plan->programs[s].n;
    return n;
}

int sp_train_start_runtime(struct sp_trainer *t)
{
    const struct sp_runtime runtime = {.place = &t->place,
                                       .host_limit = t->place.gpus && sp_train_evicts(t),
                                       .scheduler = t->cfg.scheduler,
                                       .ops = ops_of(&t->plan),
                                       .prepare = prepare_devices,
                                       .undo = stop_memory,
                                       .arg = t};
    int err = sp_runtime_start(&runtime, &t->has_starpu);

    if (t->has_starpu && (!t->place.gpus || !t->disk))
        sp_main_memory_uncount(t->place.gpus > 0);
    if (err)
        return err;
    if (!sp_scheduler_follows(t->cfg.scheduler) && t->world.rank == 0)
        sp_warn("--scheduler %s: no order is enforced; the schedule gives the priorities of tasks",
                t->cfg.scheduler);
    sp_starpu_profile(true);
    err = sp_placement_bind(&t->place);
    if (err)
        return err;
    return t->place.gpus ? sp_train_start_gpus(t) : 0;
}

void sp_train_stop_runtime(struct sp_trainer *t)
{
    if (t->has_starpu && t->place.gpus)
        sp_cuda_stop();
    if (t->has_starpu)
        sp_transport_stop();
    if (t->has_starpu && t->place.gpus)
        sp_train_end_gpus();
    if (t->has_starpu)
        stop_memory(t);
    for (int i = 0; i < 2; i++)
        if (t->limited[i])
            unsetenv(t->limited[i]);
    t->has_starpu = false;
    t->limited[0] = t->limited[1] = NULL;
}
