/* Takes a plan to a trainer that can step: StarPU, the model in its stages, the log, the
 * watchdog. */
#include "train/start/start.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/cuda_memory.h"
#include "graphs/weights/checkpoint.h"
#include "offload/host.h"
#include "offload/main_memory.h"
#include "policies/load/guard.h"
#include "sp_error.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/save.h"
#include "train/run/replan.h"
#include "train/run/log.h"
#include "train/run/watchdog.h"
#include "train/start/device.h"
#include "train/start/graph_config.h"
#include "train/start/memory.h"
#include "train/start/offload.h"
#include "train/start/partition.h"
#include "transport/starpu_environment.h"
#include "plan/offload/pages.h"
#include "graphs/create.h"
#include "transport/transport.h"
#include "sinks/starpu/runtime.h"
#include "sinks/starpu/sink.h"
#include <stdlib.h>

/* Sets how StarPU gets main memory. */
static int start_memory(const struct sp_trainer *t)
{
    static const struct sp_host_pins pins = {sp_cuda_pin, sp_cuda_unpin};
    int err;

    if (sp_train_offloads(t)) {
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

static void stop_memory(const struct sp_trainer *t)
{
    if (sp_train_offloads(t))
        sp_host_stop();
    else if (!t->place.gpus)
        sp_main_memory_stop();
}

/* Prepares GPUs and main memory, before StarPU takes its own. */
static int prepare_devices(void *arg)
{
    struct sp_trainer *t = arg;
    int err = t->place.gpus ? sp_train_prepare_gpus(t) : 0;

    return err ? err : start_memory(t);
}

static void undo_memory(void *arg)
{
    stop_memory(arg);
}

static int start_starpu(struct sp_trainer *t)
{
    const struct sp_runtime runtime = {.place = &t->place,
                                       .host_limit = t->place.gpus && sp_train_offloads(t),
                                       .ready = t->cfg.scheduler == SP_TRAIN_READY,
                                       .prepare = prepare_devices,
                                       .undo = undo_memory,
                                       .arg = t};
    int err;

    /* GPUs take long to start; without them this is as short as MPI's start, and waits for the
     * others */
    sp_watchdog_begin(t->place.gpus ? SP_PHASE_SETUP : SP_PHASE_LAUNCH, "starting StarPU");
    err = sp_runtime_start(&runtime, &t->has_starpu);
    sp_watchdog_end();
    if (t->has_starpu && (!t->place.gpus || !t->disk))
        sp_main_memory_uncount(t->place.gpus > 0);
    if (err)
        return err;
    sp_starpu_profile(true);
    err = sp_placement_bind(&t->place);
    if (err)
        return err;
    return t->place.gpus ? sp_train_start_gpus(t) : 0;
}

/* Fills in weights and moments: those of the layout before this one, those of the resumed step,
 * or the initial ones. */
static int fill_graph(struct sp_trainer *t)
{
    int err = 0;

    if (sp_train_carries(t))
        return sp_train_take_carried(t);
    if (!t->cfg.inference)
        err = sp_checkpoint_init(&t->graph, t->weights.n_shards ? &t->weights : NULL);
    if (!err && t->cfg.resume)
        err = sp_train_load_resume(t);
    return err;
}

static int make_graph(struct sp_trainer *t)
{
    struct sp_graph_config cfg = sp_train_graph_config(t);
    int err;

    cfg.sink = sp_starpu_sink();
    cfg.in_stream = sp_train_runs_ahead(t);
    err = sp_graph_create(&cfg, &t->place, &t->graph);
    if (err)
        return err;
    t->has_graph = true;
    err = fill_graph(t);
    err = err ? err : sp_step_report_create(&t->graph, &t->report);
    if (err)
        return err;
    t->meters = calloc((size_t)t->place.stages, sizeof *t->meters);
    if (t->plan.family->facts.stashes)
        t->updates = calloc((size_t)sp_updates(&t->plan.layout), sizeof *t->updates);
    return t->meters && (t->updates || !t->plan.family->facts.stashes)
               ? 0
               : sp_error(ENOMEM, "no memory for %d stages", t->place.stages);
}

static int measure(struct sp_trainer *t)
{
    int err = sp_train_partition_measured(t);

    return err ? err : sp_train_offload_measured(t);
}

/* The last action before the first step: an end that is asked for from here on comes after that
 * step. */
static int open_log(struct sp_trainer *t)
{
    int err = sp_train_log_open(t);

    if (!err)
        sp_transport_barrier(); /* nothing moves before all are ready */
    return err;
}

int sp_train_start_graph(struct sp_trainer *t)
{
    static const struct {
        int (*go)(struct sp_trainer *t);
        const char *what;
    } parts[] = {
        {start_starpu, "preparing StarPU"},
        {measure, "measuring"},
        {make_graph, "making the model"},
    };
    int err = 0;

    for (size_t i = 0; !err && i < sizeof parts / sizeof *parts; i++) {
        sp_watchdog_begin(SP_PHASE_SETUP, "%s", parts[i].what);
        err = parts[i].go(t);
        sp_watchdog_end();
    }
    return err;
}

int sp_train_start(struct sp_trainer *t)
{
    int err;

    sp_guard_work_begins();
    err = sp_train_start_graph(t);
    if (!err) {
        sp_watchdog_begin(SP_PHASE_EVALUATE, "beginning");
        err = open_log(t);
        sp_watchdog_end();
    }
    if (err)
        return sp_train_fail(t, err);
    sp_watchdog_know_graph(&t->graph);
    t->started = true;
    return 0;
}

void sp_train_stop_graph(struct sp_trainer *t)
{
    sp_watchdog_know_graph(NULL);
    free(t->meters);
    free(t->updates);
    if (t->report.stages)
        sp_step_report_destroy(&t->graph, &t->report);
    if (t->has_graph)
        sp_graph_destroy(&t->graph);
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
    t->meters = NULL;
    t->updates = NULL;
    t->report = (struct sp_step_report){0};
    t->has_graph = t->has_starpu = false;
    t->limited[0] = t->limited[1] = NULL;
}

int sp_train_stop(struct sp_trainer *t)
{
    int err = 0;

    if (t->begun) {
        sp_watchdog_begin(SP_PHASE_STEP, "ending the step that was begun");
        sp_step_rest(&t->graph, NULL, false);
        sp_transport_wait_all();
        sp_watchdog_end();
    }
    if (t->started && !t->diverged)
        err = sp_train_saved_all(t);
    sp_watchdog_know_graph(NULL);
    sp_watchdog_begin(SP_PHASE_SETUP, "ending the run");
    if (t->log)
        fclose(t->log);
    sp_train_stop_graph(t);
    sp_watchdog_end();
    return err;
}
